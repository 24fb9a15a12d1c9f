package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// hostile creates files in dir with which a sandbox can try to prevent their removal.
func hostile(t *testing.T, dir, outside string) {
	t.Helper()
	for n := range 3 * batch {
		must.Do(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d", n)), nil, 0o000))
	}
	locked := filepath.Join(dir, "locked")
	err := errors.Join(
		os.MkdirAll(filepath.Join(locked, "locked"), 0o700),
		os.WriteFile(filepath.Join(locked, "locked", "file"), nil, 0o000),
		os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(locked, "link")),
		os.Link(filepath.Join(outside, "file"), filepath.Join(dir, "hardlink")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.WriteFile(filepath.Join(dir, " \n\x1b[31m\xff"), nil, 0o600),
	)
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Lchown(filepath.Join(locked, "locked"), 4711, 4711), os.Lchown(locked, 4712, 4712))
	}
	err = errors.Join(err, os.Chmod(filepath.Join(locked, "locked"), 0), os.Chmod(locked, 0))
	// Deeper than the longest path, and than the number of files that a process may
	// have open.
	deep := filepath.Join(dir, "deep")
	err = errors.Join(err, os.Mkdir(deep, 0o700))
	for range 1500 {
		err = errors.Join(err, os.Mkdir(deep+"er", 0o700), os.Rename(deep, filepath.Join(deep+"er", "deeper")), os.Rename(deep+"er", deep))
	}
	err = errors.Join(err, os.Chmod(deep, 0o500))
	must.Do(t, err)
}

func TestRemoveHostile(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(outside, "file"), []byte("of this user"), 0o640))
	dir := t.TempDir()
	s := open(t, dir)
	of := func() string {
		made, err := s.NewDir()
		must.Do(t, err)
		hostile(t, made, outside)
		return made
	}
	if err := s.Discard(of()); err != nil {
		t.Error(err)
	}
	wantFiles(t, s)
	put(t, s, Sandboxes, "a", "", of())
	if err := s.Delete(Sandboxes, "a"); err != nil {
		t.Error(err)
	}
	wantFiles(t, s)
	of()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantFiles(t, open(t, dir))

	info, err := os.Stat(filepath.Join(outside, "file"))
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("outside: got %v and error %v, want the file as it was", info, err)
	}
}
