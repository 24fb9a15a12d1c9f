//go:build linux

package inside

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// startClock begins the uptime of the sandbox now, so that programs notice when it was booted
// anew. The next program that this process executes gets it, and so do all processes after that.
// Only CLOCK_BOOTTIME changes, which /proc/uptime shows.
//
// A sandbox without an uptime of its own shows the machine's, which weakens nothing. If the
// kernel refuses a time namespace, startClock therefore changes nothing and reports no error.
func startClock() {
	if !execEntersTime() {
		return
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil || unix.Unshare(unix.CLONE_NEWTIME) != nil {
		return
	}
	_ = os.WriteFile("/proc/self/timens_offsets", fmt.Appendf(nil, "boottime -%d 0\n", now.Sec), 0)
}

// execEntersTime reports whether a process enters its new time namespace when it executes a
// program, which is the case since Linux 6.3. Before, only children enter it. Then envd would
// stay outside, and so would the kernels that are forked into the namespaces of envd.
func execEntersTime() bool {
	var system unix.Utsname
	if unix.Uname(&system) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(system.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 3
}
