//go:build linux

package room

import (
	"runtime"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestProcessorsInside checks that programs count as many processors as the
// sandbox may use.
func TestProcessorsInside(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one processor")
	}
	const affinity, counts = "nproc; python3 -c 'import os; print(len(os.sched_getaffinity(0)))'",
		"; python3 -c 'import os; print(os.cpu_count())'; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo"
	for _, tt := range []struct {
		level         engine.Isolation
		command, want string
	}{
		{engine.Full, affinity + counts, "1\n1\n1\n1\n1\n"},
		{engine.Restricted, affinity, "1\n1\n"},
	} {
		t.Run(string(tt.level), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, newRoomOn(t, tt.level), engine.SandboxOptions{Limits: engine.Limits{CPUs: 0.5}})
			for _, user := range []string{"root", "user"} {
				if got := call(t, s, "/run", testRequest{Command: tt.command, User: user}); got.Output != tt.want {
					t.Errorf("%s: got %+v, want %q", user, got, tt.want)
				}
			}
			uncover := "umount /proc/cpuinfo; echo x > /proc/cpuinfo; rm /proc/cpuinfo; grep -c ^processor /proc/cpuinfo"
			if got := sh(t, s, "("+uncover+") 2>/dev/null"); tt.level == engine.Full && got.Output != "1\n" {
				t.Errorf("uncovered: got %+v, want %q", got, "1\n")
			}
		})
	}
}
