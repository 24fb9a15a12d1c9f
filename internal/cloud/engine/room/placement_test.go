//go:build linux

package room

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPlacement checks that the processes of a sandbox are in its groups, and
// that no thread of the room is, because removing the groups kills the
// processes in them.
func TestPlacement(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "born"})
	if s.share.group == nil || len(s.share.group.Dirs) == 0 {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal("root has no control group for a sandbox")
		}
		t.Skip("no control group that this user may make")
	}
	pid, err := pidOf(s.process.pidfd)
	must.Do(t, err)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", r.process.first.Cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of the room: %q, %v", threads, err)
	}
	for _, h := range s.share.group.Dirs {
		name := "cgroup.threads"
		if h.Version == 1 {
			name = "tasks"
		}
		text, err := os.ReadFile(filepath.Join(h.Dir, name))
		must.Do(t, err)
		members := strings.Fields(string(text))
		if !slices.Contains(members, strconv.Itoa(pid)) {
			t.Errorf("%s has %v, without the first process, %d", h.Dir, members, pid)
		}
		for _, thread := range threads {
			if slices.Contains(members, filepath.Base(thread)) {
				t.Errorf("%s has the room's thread %s", h.Dir, filepath.Base(thread))
			}
		}
	}
}
