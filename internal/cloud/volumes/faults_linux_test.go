package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDirectoriesThatFail checks that the steps of a change pass on why a directory could not be
// opened, inspected or made, and return nothing else.
func TestDirectoriesThatFail(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	if made, err := c.makeIn("missing", "below", Attributes{}); made != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a missing directory: got %v and error %v, want %v", made, err, fs.ErrNotExist)
	}
	parent, err := os.Open(dir)
	must.Do(t, err)
	must.Do(t, parent.Close())
	for _, force := range []bool{false, true} {
		if owner, mode, err := c.replaced(parent, "name", force); !errors.Is(err, unix.EBADF) {
			t.Errorf("in a closed directory, force %v: got %v, %#o and error %v, want %v", force, owner, mode, err, unix.EBADF)
		}
	}
	heap, err := os.Open(dir)
	must.Do(t, err)
	defer heap.Close()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for name, want := range map[string]error{"missing": unix.ENOENT, "file": unix.ENOTDIR} {
		if moved, err := empty(t.Context(), heap, name); moved != nil || !errors.Is(err, want) {
			t.Errorf("empty %s: got %v and error %v, want %v", name, moved, err, want)
		}
	}
}

// TestOwnerThatIsRefused checks that a new directory or file is not returned if its owner could not
// be set.
func TestOwnerThatIsRefused(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	must.Do(t, os.Chmod(dir, 0o777)) //nolint:gosec // the thread below creates entries as another user
	parent, err := os.Open(dir)
	must.Do(t, err)
	defer parent.Close()
	c.ids = ids{}
	root := uint32(0)
	a := Attributes{UID: &root, GID: &root}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(1000) // the thread loses the right to change owners
		}
		made, _, err := c.makeDir(parent, "made", a)
		if made != nil {
			err = errors.Join(errors.New("a directory was returned"), made.Close())
		}
		ended <- err
	}()
	must.Is(t, <-ended, fs.ErrPermission)
}
