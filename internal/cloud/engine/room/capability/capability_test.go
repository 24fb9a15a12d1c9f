//go:build linux

package capability

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// names are the capabilities of the kernel, by number.
var names = []string{
	"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "linux_immutable", "net_bind_service",
	"net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin",
	"sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap", "mac_override",
	"mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore",
}

// TestKept checks that envd keeps the capabilities that package managers need, and no others.
func TestKept(t *testing.T) {
	t.Parallel()
	want := []string{"chown", "dac_override", "fowner", "fsetid", "kill", "net_bind_service", "setgid", "setuid", "sys_chroot"}
	var got, all []string
	for c := range 64 {
		if Kept(true)&(1<<c) == 0 {
			continue
		}
		name := fmt.Sprint("number ", c)
		if c < len(names) {
			name = names[c]
		}
		got = append(got, name)
		all = append(all, Names(1<<c)...)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what envd keeps (-want +got):\n%s", diff)
	}
	var called []string
	for _, name := range want {
		called = append(called, "CAP_"+strings.ToUpper(name))
	}
	slices.Sort(all)
	if diff := cmp.Diff(called, all); diff != "" {
		t.Errorf("the names one by one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(called, Names(^uint64(0))); diff != "" {
		t.Errorf("the names (-want +got):\n%s", diff)
	}
	if got := Kept(false); got != 0 {
		t.Errorf("got %#x without ids of its own, want none", got)
	}
}

// TestDrop reads the capabilities of a thread from the kernel after it has dropped some.
func TestDrop(t *testing.T) {
	t.Parallel()
	keeps := []uint64{0}
	if have, err := Effective(); err != nil || have&Kept(true) == Kept(true) {
		keeps = append(keeps, Kept(true), 1<<5) // this process has the capabilities to keep
	}
	bound := status(t)["CapBnd"]
	for _, keep := range keeps {
		lines := make(chan map[string]string)
		go func() {
			runtime.LockOSThread() // for good: nothing else may run on this thread
			defer close(lines)
			if err := Drop(keep); err != nil {
				t.Errorf("Drop(%#x): %v", keep, err)
			}
			if got, err := Effective(); err != nil || got != keep {
				t.Errorf("got %#x and error %v after Drop, want %#x", got, err, keep)
			}
			lines <- status(t)
		}()
		got, set, none := <-lines, fmt.Sprintf("%016x", keep), fmt.Sprintf("%016x", 0)
		want := map[string]string{"CapEff": set, "CapPrm": set, "CapInh": none, "CapAmb": none, "CapBnd": set}
		if len(keeps) == 1 {
			want["CapBnd"] = bound // an ordinary user may not lower it
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after Drop(%#x) (-want +got):\n%s", keep, diff)
		}
	}
}

// status returns the capabilities of this thread.
func status(t *testing.T) map[string]string {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Cap") {
			got[name] = strings.TrimSpace(value)
		}
	}
	return got
}
