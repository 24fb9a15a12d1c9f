package saved

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// opened opens a directory until the test ends.
func opened(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must.Do(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// unchanged returns a function that checks that the modes of a tree are as they are now, and that
// brings the times back, which it also changes itself.
func unchanged(t *testing.T, dir string) (check func()) {
	t.Helper()
	all := map[string]unix.Stat_t{}
	must.Do(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var stat unix.Stat_t
		err = errors.Join(err, unix.Lstat(path, &stat))
		all[path] = stat
		return err
	}))
	return func() {
		for path, want := range all {
			var stat unix.Stat_t
			must.Do(t, unix.Lstat(path, &stat))
			if stat.Mode != want.Mode {
				t.Errorf("%s: got mode %o, want %o", path, stat.Mode, want.Mode)
			}
			must.Do(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{want.Atim, want.Mtim}, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
}

// TestEachCallFails makes each system call of a kind fail in turn while a tree is saved and read. The
// error must come out, and nothing may stay open. It is not parallel, because it counts the descriptors of the process.
func TestEachCallFails(t *testing.T) { //nolint:paralleltest // see above
	from, _ := saveAll(t, 0)
	must.Do(t, os.Link(filepath.Join(from, "program"), filepath.Join(from, "skipped")))
	var whole bytes.Buffer
	must.Do(t, write(t, &whole, from)) // with this process's own owners, which it may set as any user
	check, source := unchanged(t, from), opened(t, from)
	steps := map[string]func() (do func() error){
		"save": func() func() error {
			_, err := source.Seek(0, 0) // it may have been read to its end
			must.Do(t, err)
			return func() error {
				return Write(&bytes.Buffer{}, "test", []Section{{Dir: source, Skip: []string{"skipped"}}})
			}
		},
		"read": func() func() error {
			to, links := t.TempDir(), opened(t, t.TempDir())
			place := func(string) (Place, error) {
				fd, err := unix.Dup(int(opened(t, to).Fd()))
				return Place{Dir: os.NewFile(uintptr(fd), to)}, err
			}
			p, err := place("")
			must.Do(t, err)
			return func() error {
				return Read(bytes.NewReader(whole.Bytes()), Options{Layout: "test", Links: links, Place: func(string) (Place, error) { return p, nil }})
			}
		},
	}
	for _, tt := range []struct {
		step, call string
		number     uint32
	}{
		{"save", "getdents64", unix.SYS_GETDENTS64}, {"save", "readlinkat", unix.SYS_READLINKAT}, {"save", "openat", unix.SYS_OPENAT},
		{"save", "fstatat", unix.SYS_NEWFSTATAT}, {"save", "fstat", unix.SYS_FSTAT}, {"save", "fgetxattr", unix.SYS_FGETXATTR},
		{"save", "flistxattr", unix.SYS_FLISTXATTR}, {"save", "lseek", unix.SYS_LSEEK}, {"save", "pread64", unix.SYS_PREAD64},
		{"read", "linkat", unix.SYS_LINKAT}, {"read", "renameat", unix.SYS_RENAMEAT}, {"read", "symlinkat", unix.SYS_SYMLINKAT},
		{"read", "mknodat", unix.SYS_MKNODAT}, {"read", "ftruncate", unix.SYS_FTRUNCATE}, {"read", "pwrite64", unix.SYS_PWRITE64},
		{"read", "fchown", unix.SYS_FCHOWN}, {"read", "fchownat", unix.SYS_FCHOWNAT}, {"read", "fchmod", unix.SYS_FCHMOD},
		{"read", "fchmodat", unix.SYS_FCHMODAT}, {"read", "utimensat", unix.SYS_UTIMENSAT}, {"read", "fsetxattr", unix.SYS_FSETXATTR},
		{"read", "mkdirat", unix.SYS_MKDIRAT}, {"read", "openat", unix.SYS_OPENAT}, {"read", "unlinkat", unix.SYS_UNLINKAT},
	} {
		for n, failed := 1, true; failed; n++ {
			do := steps[tt.step]()
			before := descriptors(t)
			var err error
			failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, do)
			if errors.Is(err, unix.EIO) != failed {
				t.Errorf("%s, call %d failed, %v: got %v", tt.call, n, failed, err)
			}
			if n == 1 && !failed {
				t.Errorf("%s: there was no such call", tt.call)
			}
			if after := descriptors(t); after > before {
				t.Errorf("%s, call %d failed: got %d descriptors, before it %d", tt.call, n, after, before)
			}
			check()
		}
	}
}

// TestToleratedFailures makes the calls fail that modes and owners forbid to an ordinary user. The
// saved files are the same, and all modes of the tree are as before, after an error, too.
func TestToleratedFailures(t *testing.T) {
	t.Parallel()
	from, _ := saveAll(t, 0)
	must.Do(t, errors.Join(unix.Chmod(filepath.Join(from, "sub/deep/file"), 0o4), unix.Chmod(filepath.Join(from, "sub/deep"), 0o1077)))
	check, source := unchanged(t, from), opened(t, from)
	save := func(to *bytes.Buffer) error {
		return Write(to, "test", []Section{{Dir: source, Skip: []string{"skipped"}}})
	}
	var want bytes.Buffer
	check()
	must.Do(t, save(&want))
	check()
	for _, tt := range []struct {
		call   string
		number uint32
		as     unix.Errno
		always bool // it is tolerated wherever it happens
	}{
		{"openat", unix.SYS_OPENAT, unix.EPERM, false}, {"openat", unix.SYS_OPENAT, unix.EACCES, false}, {"faccessat", unix.SYS_FACCESSAT, unix.EACCES, true},
		{"lseek", unix.SYS_LSEEK, unix.ENXIO, false},
	} {
		tolerated := 0
		for n, failed := 1, true; failed; n++ {
			_, err := source.Seek(0, 0)
			must.Do(t, err)
			var got bytes.Buffer
			failed, err = calltest.FailNth(t, tt.number, n, tt.as, func() error { return save(&got) })
			name := fmt.Sprintf("%s %d failed with %v, %v", tt.call, n, tt.as, failed)
			switch {
			case err == nil && tt.call != "lseek" && !bytes.Equal(got.Bytes(), want.Bytes()):
				t.Errorf("%s: the saved files are others", name)
			case err == nil:
				tolerated++
			case tt.always || !errors.Is(err, tt.as):
				t.Errorf("%s: got %v", name, err)
			}
			check()
		}
		if tolerated < 2 {
			t.Errorf("%s: no failure with %v was tolerated", tt.call, tt.as)
		}
	}
}

// TestShrinking checks that a file that becomes shorter while it is saved is an error that names it.
func TestShrinking(t *testing.T) {
	t.Parallel()
	for _, left := range []int64{0, 3<<20 - 1} {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		must.Do(t, os.WriteFile(file, bytes.Repeat([]byte("x"), 3<<20), 0o600))
		err := write(t, writerFunc(func(p []byte) (int, error) { return len(p), os.Truncate(file, left) }), dir)
		if want := `"/file": it became shorter while it was read`; fmt.Sprint(err) != want {
			t.Errorf("with %d bytes left: got %v, want %s", left, err, want)
		}
	}
}

// TestNamesAreForgotten checks that a file with several names is remembered until its last name only: a
// tree may have millions of such files.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	from, _ := saveAll(t, 0)
	s := &saver{e: newEncoder(&bytes.Buffer{}), links: make(map[file]*linked), buffer: make([]byte, 1<<20), of: Section{Dir: opened(t, from)}}
	if err := s.section(); err != nil || s.next != 3 || len(s.links) > 0 {
		t.Errorf("got error %v, %d files with several names and %d that are remembered, want 3 and none", err, s.next, len(s.links))
	}
}

// TestGrowing checks that nothing of a file is saved from behind its end, where it may have grown since
// its size was read.
func TestGrowing(t *testing.T) {
	t.Parallel()
	const hole = 64 << 10
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must.Do(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte("x"), hole), hole)
	must.Do(t, err)
	if begin, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); err != nil || begin != hole {
		t.Skipf("this file system keeps no such hole: data begins at %d, %v", begin, err)
	}
	for _, size := range []int64{0, 1, hole - 1, hole, hole + 1, 2*hole - 1, 2 * hole, 2*hole + 1} {
		var got, want bytes.Buffer
		s, e := &saver{e: newEncoder(&got), buffer: make([]byte, 1<<10)}, newEncoder(&want)
		if n := min(size, 2*hole) - hole; n > 0 {
			e.extent(hole, n)
			e.bytes(bytes.Repeat([]byte("x"), int(n)))
		}
		must.Do(t, errors.Join(s.content(f, size), s.e.finish(), e.finish()))
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("with %d bytes: got %d bytes of content, want %d", size, got.Len(), want.Len())
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
