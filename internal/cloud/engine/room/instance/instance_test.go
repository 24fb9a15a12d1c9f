//go:build linux

package instance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCleanClosed checks that a directory of a volume that a sandbox closed even to its owner is
// removed, too, with a cloud that keeps nothing.
func TestCleanClosed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cloud-1")
	closed := filepath.Join(dir, "state", "files", "closed")
	must.Do(t, errors.Join(os.MkdirAll(closed, 0o700), os.WriteFile(filepath.Join(closed, "file"), nil, 0o600), os.Chmod(closed, 0)))
	if err := (Spec{Dir: dir, Roots: filepath.Join(dir, "sandboxes")}).Clean(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want the directory to be gone", err)
	}
}
