package layer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

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
		file("x", "again").owned(1, 1, 0o4755).with(attr+"a", "1"), dir("d", 0o750).with(attr+"b", "2"), dir(".", 0o711))
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
			failed, err = calltest.FailNth(t, number, n, func() error { return do(to) })
			if !failed {
				must.Do(t, err)
			} else if !errors.Is(err, calltest.Err) {
				t.Errorf("call %d of number %d failed: got %v, want %v", n, number, err, calltest.Err)
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
