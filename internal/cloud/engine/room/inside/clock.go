//go:build linux

package inside

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// startClock begins the uptime of the sandbox now, so that programs can see when the sandbox was
// booted anew. The new uptime applies to the next program that this process executes, and to all
// processes after that. Only CLOCK_BOOTTIME changes, and with it /proc/uptime.
//
// A sandbox without its own uptime shows the machine's uptime. This weakens no protection.
// Therefore, if the kernel refuses a time namespace, startClock changes nothing and returns no
// error.
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
// program. This is the case since Linux 6.3. In earlier versions, only children enter the
// namespace. Envd would then stay outside of the time namespace, and so would the kernels that are
// forked into the namespaces of envd.
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
