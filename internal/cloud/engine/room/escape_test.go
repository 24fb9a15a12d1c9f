//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/escapetest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// TestEscape makes code in a sandbox try forbidden actions, as both of its users, with
// namespaces and without.
func TestEscape(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			escape(t, newSandbox(t, r, engine.SandboxOptions{}))
		})
	}
}

// TestEscapeImage does the same in a sandbox of an image, with and without a warm sandbox.
func TestEscapeImage(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	programs := []string{"/bin/sh"}                                                                                    // busybox's own sh runs its own programs
	for _, name := range []string{"bash", "date", "chrt", "unshare", "nsenter", "mount", "umount", "mknod", "dmesg"} { // busybox's versions of some of them do less
		path, err := exec.LookPath(name)
		if err != nil {
			pinned.Skip(t, "%s is needed: %v", name, err)
		}
		programs = append(programs, path)
	}
	layers := busyboxImage(t, r, func(root string) error {
		return errors.Join(imagetest.Programs(t, root, programs...), imagetest.Python(t, root))
	})
	for name, processes := range map[string]int{"warm": 0, "cold": 500} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, r, engine.SandboxOptions{Image: anImage, Layers: layers, Limits: engine.Limits{MaxProcesses: processes}})
			wantOutput(t, s, "user", "python3 -c 'import ctypes, socket; print(1)'; bash -c 'echo 2'; date +3; for p in grep find awk; do command -v $p > /dev/null || echo no $p; done", "1\n2\n3")
			escape(t, s)
		})
	}
}

// escape makes code in a sandbox try to escape, as both of its users.
func escape(t *testing.T, s *Sandbox) {
	t.Helper()
	escapes := escapetest.List(t, s.room.keeper.running().Cmd.Process.Pid)
	if s.room.level == engine.Restricted {
		escapes = append(escapes, escapetest.InPlace(t)...)
	}
	for _, user := range []string{"root", "user"} {
		for _, e := range escapes {
			if e.FullOnly && s.room.level != engine.Full {
				continue
			}
			t.Run(user+"/"+e.Name, func(t *testing.T) {
				// A command that did not run proves nothing.
				got := call(t, s, "/run", testRequest{Command: "export TMPDIR=$(mktemp -d); (" + e.Command + "); echo tried", User: user})
				if strings.Contains(got.Output, "ESCAPED") || !strings.HasSuffix(got.Output, "tried\n") {
					t.Errorf("%s\n%+v", e.Command, got)
				}
			})
		}
	}
}

// TestUserMap checks that no id inside a sandbox is the host's root.
func TestUserMap(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	newSandbox(t, r, engine.SandboxOptions{})
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", envdPID(r)))
	must.Do(t, err)
	ranges := parseIDMap(data)
	if len(ranges) == 0 {
		t.Fatalf("no map in %q", data)
	}
	for _, m := range ranges {
		if m.outside == 0 {
			t.Errorf("host uid 0 is %d inside: %s", m.inside, data)
		}
		if m.count != uint64(r.Report().IDs) {
			t.Errorf("%d ids are mapped, the report says %d", m.count, r.Report().IDs)
		}
	}
}
