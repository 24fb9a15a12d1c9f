package layer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
)

// calls lists the system calls with which this package reads and makes files.
var calls = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_NEWFSTATAT, unix.SYS_FSTAT, unix.SYS_GETDENTS64, unix.SYS_READLINKAT,
	unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE,
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_UTIMENSAT,
	unix.SYS_FLISTXATTR, unix.SYS_FGETXATTR, unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR,
}

// TestEachCallFails makes each system call of Untar and of Merge fail in turn. The failure must be
// the error of Untar or Merge, and no descriptor may stay open. It is not parallel, because it counts
// the descriptors of the process.
func TestEachCallFails(t *testing.T) { //nolint:paralleltest // see above
	const attr = "SCHILY.xattr.user."
	below := archive(t, dir("d", 0o755).with(attr+"a", "1"), file("d/old", "old"), dir("d/sub", 0o700), file("d/target", "x"),
		file("gone/f", ""), symlink("s", "d/sub"), file("opaque/f", ""), file("replaced/x", ""), file("device", ""))
	above := archive(t,
		file("d/new", "text"), file("d/zeros", string(make([]byte, 64<<10))), file("d/.wh.old", ""), file("s/through", ""),
		file(".wh.gone", ""), file("gone/again", ""), file("opaque/.wh..wh..opq", ""), of('3', "device"),
		hardlink("hard", "d/target"), hardlink("hard", "d/new"), hardlink("hard", "hard"), of('6', "fifo").owned(1, 1, 0o640),
		symlink("l", "d"), file("l/in", ""), symlink("replaced", "d"), file("x", ""), dir("x", 0).owned(1, 1, 0o711), file("x/y", ""),
		file("x", "again").owned(1, 1, 0o4755).with(attr+"a", "1"), symlink("abs", "/d/sub"), file("d/sub/y", ""), file("abs/z", ""), symlink("d/sub/up", ".."), file("d/sub/up/w", ""),
		dir("d", 0o750).with(attr+"b", "2"), dir(".", 0o711))
	lower, err := stack(t, closed(t), below)
	must.Do(t, err)
	untar := func(to *os.File) error {
		return layer.Untar(bytes.NewReader(above), layer.TarOptions{To: to, Below: lower, IDs: ids()})
	}
	failEach(t, untar)

	upper := open(t, t.TempDir())
	must.Do(t, untar(upper))
	failEach(t, func(to *os.File) error {
		for _, from := range []*os.File{upper, lower[0]} { // it may have been read to its end
			if _, err := from.Seek(0, 0); err != nil {
				return err
			}
		}
		return layer.Merge(to, []*os.File{upper, lower[0]}, true)
	})
}

// TestToleratedFailures makes calls fail with the errors of other file systems and of files of other
// users, with which Untar and OpenDir must not fail, and of a call that a signal interrupted.
func TestToleratedFailures(t *testing.T) {
	t.Parallel()
	below := archive(t, dir("d", 0o750), file("d/a", "below"))
	above := archive(t, dir("d/sub", 0o700), file("d/b", "above").with("SCHILY.xattr.user.a", "1"), dir("d", 0o711).with("SCHILY.xattr.user.a", "1"))
	want := []string{"d 40711", `d/a 100644 "below"`, `d/b 100644 "above"`, "d/sub 40700"}
	for what, tt := range map[string]struct {
		number uint32
		as     unix.Errno
	}{
		"no list of attributes":            {unix.SYS_FLISTXATTR, unix.ENOTSUP},
		"no mark of an opaque directory":   {unix.SYS_FGETXATTR, unix.ENOTSUP},
		"no attributes":                    {unix.SYS_FSETXATTR, unix.ENOTSUP},
		"a signal while a file is written": {unix.SYS_PWRITE64, unix.EINTR},
	} {
		for n, failed := 1, true; failed; n++ {
			in := closed(t)
			dirs, err := stack(t, in, below)
			must.Do(t, err)
			must.Do(t, os.Mkdir(filepath.Join(in, "to"), 0o700))
			to := open(t, filepath.Join(in, "to"))
			failed, err = calltest.FailNth(t, tt.number, n, tt.as, func() error {
				return layer.Untar(bytes.NewReader(above), layer.TarOptions{To: to, Below: dirs, IDs: ids()})
			})
			if err != nil || n == 1 && !failed {
				t.Errorf("%s, call %d: failed %v, got %v, want no error", what, n, failed, err)
				break
			}
			if diff := cmp.Diff(want, brief(shown(t, in, []*os.File{to, dirs[0]}))); diff != "" {
				t.Errorf("%s, call %d (-want +got):\n%s", what, n, diff)
			}
		}
	}
	root := open(t, t.TempDir())
	failed, err := calltest.FailNth(t, unix.SYS_OPENAT2, 1, unix.EPERM, func() error {
		dir, err := layer.OpenDir(root, ".")
		if err == nil {
			err = dir.Close()
		}
		return err
	})
	if !failed || err != nil {
		t.Errorf("a directory of another user: failed %v, got %v, want no error", failed, err)
	}
}

// TestEachCallOfWriteFails makes each call of Write fail in turn. It reports each failure, and the
// next layer can be read.
func TestEachCallOfWriteFails(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint32]int{unix.SYS_OPENAT: 2, unix.SYS_SYNCFS: 1, unix.SYS_WRITE: 1, unix.SYS_FSYNC: 2} {
		n := 0
		for failed := true; failed; {
			n++
			in := t.TempDir()
			must.Do(t, os.MkdirAll(filepath.Join(in, layer.Trees, "0"), 0o700))
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
				return layer.Manifest{Layout: "a", Trees: []string{""}}.Write(in)
			})
			if errors.Is(err, unix.EIO) != failed {
				t.Errorf("call %d of number %d failed, %v: got %v", n, number, failed, err)
			}
			if _, err := layer.Read(in); !failed && err != nil {
				t.Errorf("no call of number %d failed: %v", number, err)
			}
		}
		if n-1 != want {
			t.Errorf("got %d calls of number %d, want %d", n-1, number, want)
		}
	}
}

// failEach calls do with an empty directory once for each of its calls, and makes this call fail.
func failEach(t *testing.T, do func(to *os.File) error) {
	t.Helper()
	in := closed(t)
	for _, number := range calls {
		for n, failed := 1, true; failed; n++ {
			at := filepath.Join(in, "to")
			must.Do(t, os.Mkdir(at, 0o700))
			to := open(t, at)
			before := descriptors(t)
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return do(to) })
			if !failed {
				must.Do(t, err)
			} else if !errors.Is(err, unix.EIO) {
				t.Errorf("call %d of number %d failed: got %v, want %v", n, number, err, unix.EIO)
			}
			if got := descriptors(t); got > before {
				t.Errorf("call %d of number %d: got %d descriptors, want %d", n, number, got, before)
			}
			must.Do(t, errors.Join(to.Close(), os.RemoveAll(at)))
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return len(all)
}
