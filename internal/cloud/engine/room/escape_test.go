//go:build linux

package room

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/escapetest"
)

// TestEscape makes code in a sandbox try what it must not be able to do, as both of
// its users, with namespaces and without.
func TestEscape(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			s := newSandbox(t, r, engine.SandboxOptions{})
			escapes := escapetest.List(t, r.keeper.Cmd.Process.Pid)
			for _, user := range []string{"root", "user"} {
				for _, e := range escapes {
					if e.FullOnly && level != engine.Full {
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
		})
	}
}

// TestUserMap: no id inside a sandbox is the host's root.
func TestUserMap(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	newSandbox(t, r, engine.SandboxOptions{})
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", envdPID(r)))
	if err != nil {
		t.Fatal(err)
	}
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
