//go:build linux

package room

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNoexec checks the note about sandboxes in a directory where no program can be executed.
// There is none if they have a file system of their own.
func TestNoexec(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	roots := filepath.Join(dir, "sandboxes")
	must.Do(t, os.Mkdir(roots, 0o700))
	for _, tt := range []struct {
		level engine.Isolation
		roots string
		want  bool
	}{{engine.Restricted, roots, true}, {engine.None, roots, true}, {engine.Full, roots, false}, {engine.Restricted, "/usr", false}} {
		r := &Room{level: tt.level, keeper: &Keeper{spec: instance.Spec{Roots: tt.roots}, groups: &cgroup.Groups{}}}
		choose(t, r)
		r.fillReport(nil, nil)
		notes := strings.Join(r.report.Notes, "; ")
		if strings.Contains(notes, dir+" is on a file system that is mounted noexec; have TMPDIR name") != tt.want {
			t.Errorf("%s in %s: got %q, want it to say so: %v", tt.level, tt.roots, notes, tt.want)
		}
	}
}
