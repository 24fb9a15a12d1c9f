package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCreationFails makes, one at a time, the calls fail that lock, flush and rename the files of a
// new store. Open reports each failure, and the next Open succeeds. A database that could not be
// completed does not get its final name.
func TestCreationFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		call   string
		number uint32
		early  int // number of calls up to the renaming of the database
	}{
		{"flock", unix.SYS_FLOCK, 3},
		{"fdatasync", unix.SYS_FDATASYNC, 3},
		{"fsync", unix.SYS_FSYNC, 1},
		{"renameat", unix.SYS_RENAMEAT, 1},
	} {
		n := 0
		for failed := true; failed; {
			n++
			dir := filepath.Join(t.TempDir(), "state")
			var s *Store
			var err error
			failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, func() (err error) {
				s, err = Open(t.Context(), dir)
				return err
			})
			if got := strings.Contains(fmt.Sprint(err), unix.EIO.Error()); got != failed {
				t.Errorf("%s %d failed, %v: got %v", tt.call, n, failed, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, databaseFile)); (err == nil) != (n > tt.early) {
				t.Errorf("%s %d failed: got %v, want a database after call %d", tt.call, n, err, tt.early)
			}
			if s == nil {
				s = open(t, dir)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s %d failed: %v", tt.call, n, err)
			}
		}
		if n <= tt.early {
			t.Errorf("%s: got %d calls, want at least %d", tt.call, n-1, tt.early)
		}
	}
}

// TestEachCallFails makes each system call of a kind fail in turn while a state directory is opened and
// emptied. Either the error comes out, or the result is the same as without the failure, or a note
// tells of the difference. Afterwards the same call succeeds.
func TestEachCallFails(t *testing.T) {
	t.Parallel()
	from := filled(t)
	must.Do(t, errors.Join(
		os.MkdirAll(filepath.Join(from, staging, "new", "deep"), 0o700), os.WriteFile(filepath.Join(from, staging, "new", "file"), nil, 0o600),
		os.Mkdir(filepath.Join(from, trash, "old"), 0o700), os.Chmod(filepath.Join(from, staging, "new", "deep"), 0o500)))
	for _, tt := range []struct {
		call   string
		number uint32
	}{
		{"openat", unix.SYS_OPENAT}, {"newfstatat", unix.SYS_NEWFSTATAT}, {"getdents64", unix.SYS_GETDENTS64}, {"mkdirat", unix.SYS_MKDIRAT},
		{"renameat", unix.SYS_RENAMEAT}, {"unlinkat", unix.SYS_UNLINKAT}, {"flock", unix.SYS_FLOCK}, {"ftruncate", unix.SYS_FTRUNCATE},
		{"pwrite64", unix.SYS_PWRITE64}, {"fchmodat", unix.SYS_FCHMODAT}, {"fsync", unix.SYS_FSYNC}, {"statfs", unix.SYS_STATFS},
	} {
		for what, do := range map[string]func(t *testing.T, dir string) (check func(), err error){"open": opened, "reset": emptied} {
			t.Run(what+" "+tt.call, func(t *testing.T) {
				t.Parallel()
				for n, failed := 1, true; failed; n++ {
					dir := t.TempDir()
					must.Do(t, errors.Join(os.CopyFS(dir, os.DirFS(from)), os.Chmod(dir, 0o700)))
					var check func()
					var err error
					failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, func() (err error) {
						check, err = do(t, dir)
						return err
					})
					if err == nil {
						check()
					} else if !failed || !strings.Contains(err.Error(), unix.EIO.Error()) {
						t.Errorf("call %d failed, %v: got %v", n, failed, err)
					}
					if check, err = do(t, dir); err != nil {
						t.Errorf("after call %d had failed: %v", n, err)
						continue
					}
					check()
				}
			})
		}
	}
}

// opened opens a store. check closes it.
func opened(t *testing.T, dir string) (check func(), err error) {
	s, err := Open(t.Context(), dir)
	return func() {
		all, err := s.Records(Sandboxes)
		if left := len(held(t, s.path(staging))) + len(held(t, s.path(trash))); err != nil || len(all) != 1 || left > 0 && len(s.Notes()) == 0 {
			t.Errorf("got the records %v, error %v, %d files left and the notes %q", all, err, left, s.Notes())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}, err
}

func emptied(t *testing.T, dir string) (check func(), err error) {
	return func() { wantOnlyLock(t, dir) }, Reset(t.Context(), dir)
}

// TestSizeOfUnreadable checks that a directory that cannot be read counts once, and one that is gone
// not at all.
func TestSizeOfUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, err := size(t.Context(), dir)
	must.Do(t, err)
	var got int64
	if failed, err := calltest.FailNth(t, unix.SYS_GETDENTS64, 1, unix.EIO, func() (err error) {
		got, err = size(t.Context(), dir)
		return err
	}); !failed || err != nil || got != whole {
		t.Errorf("unreadable: got %d bytes and error %v, want %d", got, err, whole)
	}
	if got, err := size(t.Context(), filepath.Join(dir, "gone")); err != nil || got != 0 {
		t.Errorf("gone: got %d bytes and error %v, want 0", got, err)
	}
}
