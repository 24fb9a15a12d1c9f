//go:build linux

package room

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

func TestShareProcesses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		most, used, own, want int64
		says                  string
	}{
		{most: 512, used: 10, own: 40, want: 256},
		{most: 80, used: 10, own: 40, want: 30},
		{most: 10_000, used: 9_000, own: 40, want: 960},
		{most: 64, used: 10, own: 40, says: "at least 74"},
		{most: 40, used: 1, own: 10, says: "at least 48"},
	} {
		got, err := shareProcesses(cgroup.ProcessLimit{Dir: "/group", Max: tt.most, Used: tt.used}, tt.own)
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: got %d and error %v", tt, got, err)
		}
	}
}

// A supervisor of many sandboxes has no more threads than a supervisor without sandboxes:
// when sandboxes have taken all processes, it could not get more.
func TestSupervisorThreads(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			for range 12 {
				newSandbox(t, r, engine.SandboxOptions{})
			}
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", roomPID(t, r)))
			if most := spawn.ThreadsOf(spawn.RoomProcessors); err != nil || len(threads) == 0 || len(threads) > most {
				t.Errorf("the room has %d threads, want 1 to %d: %v", len(threads), most, err)
			}
		})
	}
}
