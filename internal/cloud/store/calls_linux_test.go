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

// TestEachCallFails makes each system call of a kind fail in turn while a state directory is created, opened
// and emptied. Either the error comes out, or the result is the same as without the failure, or a note
// tells of the difference. No file stays open. Afterwards the same call succeeds.
func TestEachCallFails(t *testing.T) {
	t.Parallel()
	from := filled(t)
	must.Do(t, errors.Join(
		os.MkdirAll(filepath.Join(from, staging, "new", "deep"), 0o700), os.WriteFile(filepath.Join(from, staging, "new", "file"), nil, 0o600),
		os.Mkdir(filepath.Join(from, trash, "old"), 0o700), os.Chmod(filepath.Join(from, staging, "new", "deep"), 0o500)))
	bare := t.TempDir() // the creation of its store was interrupted, and trash is no directory
	must.Do(t, errors.Join(os.WriteFile(filepath.Join(bare, unfinished), []byte("garbage"), 0o600), os.WriteFile(filepath.Join(bare, trash), nil, 0o600)))
	unmade := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(unmade, unfinished), []byte("garbage"), 0o600))
	for _, tt := range []struct {
		call   string
		number uint32
	}{
		{"openat", unix.SYS_OPENAT}, {"newfstatat", unix.SYS_NEWFSTATAT}, {"getdents64", unix.SYS_GETDENTS64}, {"mkdirat", unix.SYS_MKDIRAT},
		{"renameat", unix.SYS_RENAMEAT}, {"unlinkat", unix.SYS_UNLINKAT}, {"flock", unix.SYS_FLOCK}, {"ftruncate", unix.SYS_FTRUNCATE},
		{"pwrite64", unix.SYS_PWRITE64}, {"fchmodat", unix.SYS_FCHMODAT}, {"fsync", unix.SYS_FSYNC}, {"statfs", unix.SYS_STATFS},
	} {
		for what, of := range map[string]struct {
			from string
			do   func(t *testing.T, dir string) (check func(), err error)
		}{"create": {unmade, opened(0)}, "open": {from, opened(1)}, "reset": {from, emptied}, "reset what is none": {bare, emptied}} {
			do := of.do
			t.Run(what+" "+tt.call, func(t *testing.T) {
				t.Parallel()
				for n, failed := 1, true; failed; n++ {
					dir := t.TempDir()
					must.Do(t, errors.Join(os.CopyFS(dir, os.DirFS(of.from)), os.Chmod(dir, 0o755)))
					var check func()
					var err error
					failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, func() (err error) {
						check, err = do(t, dir)
						return err
					})
					if err == nil {
						check()
					} else if !failed || !strings.Contains(err.Error(), unix.EIO.Error()) && (of.from != bare || !errors.Is(err, unix.ENOTDIR)) {
						t.Errorf("call %d failed, %v: got %v", n, failed, err)
					}
					wantClosed(t, dir)
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

// opened returns a function that opens a store with a number of records. check closes it.
func opened(records int) func(t *testing.T, dir string) (check func(), err error) {
	return func(t *testing.T, dir string) (check func(), err error) {
		s, err := Open(t.Context(), dir)
		return func() {
			all, err := s.Records(Sandboxes)
			if left := len(held(t, s.path(staging))) + len(held(t, s.path(trash))); err != nil || len(all) != records || left > 0 && len(s.Notes()) == 0 {
				t.Errorf("got the records %v, error %v, %d files left and the notes %q", all, err, left, s.Notes())
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("got %v and error %v, want mode 0700", info.Mode(), err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}, err
	}
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

// TestCallsThatFailOnce makes one system call of a function fail. What the function then returns differs
// from its result without the failure.
func TestCallsThatFailOnce(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	s := open(t, dir)
	waste := filepath.Join(s.path(trash), "waste")
	lock := filepath.Join(t.TempDir(), "lock")
	must.Do(t, errors.Join(os.Mkdir(waste, 0o700), os.WriteFile(lock, []byte("7\npid:[1]\n"), 0o600)))
	file, err := os.Open(lock)
	must.Do(t, err)
	defer file.Close()
	for what, tt := range map[string]struct {
		number uint32
		do     func() (string, error)
		want   string
	}{
		"a directory that cannot be emptied": {unix.SYS_GETDENTS64, func() (string, error) { _, err := s.empty(waste); return "", err }, unix.EIO.Error()},
		"a directory without attributes": {unix.SYS_NEWFSTATAT, func() (string, error) {
			all, err := Survey(t.Context(), dir, Sandboxes)
			return fmt.Sprint(len(all)), err
		}, "0"},
		"a process without a namespace": {unix.SYS_READLINKAT, func() (string, error) { return inUse("/state", file).By(), nil }, "in use by process 7"},
	} {
		var got string
		failed, err := calltest.FailNth(t, tt.number, 1, unix.EIO, func() (err error) {
			got, err = tt.do()
			return err
		})
		if err != nil {
			got = err.Error()
		}
		if !failed || !strings.Contains(got, tt.want) {
			t.Errorf("%s: failed %v, got %q, want %q", what, failed, got, tt.want)
		}
	}
}

// TestLockEnds checks that a closed store is not locked, even if another process still has the lock file open,
// as a child has for a moment.
func TestLockEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	path := s.path(lockFile)
	child := -1
	for fd, of := range descriptors(t, dir) {
		if of == path {
			child, _ = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		}
	}
	if child < 0 {
		t.Fatal("the lock file is not open")
	}
	defer func() { _ = unix.Close(child) }()
	must.Do(t, s.Close())
	open(t, dir)
}
