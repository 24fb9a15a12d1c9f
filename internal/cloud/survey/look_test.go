//go:build linux

package survey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// walkOf returns a survey of root that takes all changes for old. When the test ends, it checks that
// the survey has closed all directories below root.
func walkOf(t *testing.T, root string) *walk {
	t.Helper()
	f, err := os.Open(root)
	must.Do(t, err)
	t.Cleanup(func() {
		must.Do(t, f.Close())
		if open := fdtest.Open(t, root); len(open) != 0 {
			t.Errorf("%q are still open, want none", open)
		}
	})
	w := &walk{root: int(f.Fd()), now: time.Now().Add(time.Hour), known: make(map[string]bool)}
	w.more = sync.NewCond(&w.mu)
	return w
}

// looked is the result of reading a directory.
type looked struct {
	d     directory
	below []string
	err   error
}

// look reads a directory, and sorts the names in the result.
func look(w *walk, path string) looked {
	d, below, err := w.look(path, make([]byte, 32<<10))
	slices.Sort(d.files)
	slices.Sort(below)
	return looked{d, below, err}
}

// diff compares two results. Two errors are equal if both are the same.
func (want looked) diff(got looked) string {
	text := cmp.Diff(want.d, got.d, cmp.AllowUnexported(directory{})) + cmp.Diff(want.below, got.below)
	failed, _ := errors.AsType[*fs.PathError](got.err)
	if wanted, ok := errors.AsType[*fs.PathError](want.err); ok && failed != nil {
		return text + cmp.Diff(*wanted, *failed)
	}
	if !errors.Is(got.err, want.err) {
		text += fmt.Sprintf("got error %v, want %v", got.err, want.err)
	}
	return text
}

// entry returns the entry of a directory.
func entry(t *testing.T, root, path string, private bool, files ...string) directory {
	t.Helper()
	var stat unix.Stat_t
	must.Do(t, unix.Lstat(filepath.Join(root, path), &stat))
	return directory{path: path, inode: stat.Ino, changed: stat.Ctim.Nano(), private: private, files: files}
}

// tree creates a tree with files and directories of all kinds.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{
		"top": 0o600, "d/public": 0o644, "d/program": 0o711, "d/secret": 0o640, "d/other": 0o600, "d/sub/file": 0o600, "d/known/file": 0o600, "closed/in": 0o600,
		"closed/sub/in": 0o600,
	})
	must.Do(t, errors.Join(
		os.Symlink("secret", filepath.Join(root, "d", "link")), os.Symlink("d", filepath.Join(root, "link")),
		os.Chmod(filepath.Join(root, "closed"), 0o750), os.Chmod(root, 0o700),
	))
	return root
}

// TestLookFails makes each system call fail that reading a directory makes.
func TestLookFails(t *testing.T) {
	// Not parallel: it fails at once where other tests would hang.
	root := tree(t)
	w := walkOf(t, root)
	whole := entry(t, root, "d", false, "other", "secret")
	failed := func(op string) looked { return looked{err: &fs.PathError{Op: op, Path: "d", Err: unix.EIO}} }
	for _, tt := range []struct {
		name   string
		number uint32
		n      int
		as     unix.Errno
		want   looked
	}{
		{"open", unix.SYS_OPENAT2, 1, unix.EIO, failed("open")},
		{"open", unix.SYS_OPENAT2, 1, unix.EACCES, looked{d: directory{path: "d", private: true}}},
		{"open", unix.SYS_OPENAT2, 1, unix.EPERM, looked{d: directory{path: "d", private: true}}},
		{"open", unix.SYS_OPENAT2, 1, unix.ENOENT, looked{err: errGone}},
		{"open", unix.SYS_OPENAT2, 1, unix.ENOTDIR, looked{err: errGone}},
		{"open", unix.SYS_OPENAT2, 1, unix.ELOOP, looked{err: errGone}},
		{"stat", unix.SYS_FSTAT, 1, unix.EIO, failed("stat")},
		{"list", unix.SYS_GETDENTS64, 1, unix.EIO, failed("read")},
		{"list", unix.SYS_GETDENTS64, 2, unix.EIO, failed("read")},
		{"list", unix.SYS_GETDENTS64, 3, unix.EIO, looked{whole, []string{"d/known", "d/sub"}, nil}}, // never called
	} {
		var got looked
		_, _ = calltest.FailNth(t, tt.number, tt.n, tt.as, func() error { got = look(w, "d"); return got.err })
		if diff := tt.want.diff(got); diff != "" {
			t.Errorf("call %d to %s fails as %v (-want +got):\n%s", tt.n, tt.name, tt.as, diff)
		}
	}
}

// TestLook checks every part of the result of reading a directory, and that no link is followed.
func TestLook(t *testing.T) {
	t.Parallel()
	root := tree(t)
	w := walkOf(t, root)
	w.known["d/known"] = true
	long := strings.Repeat("x", 256)
	for path, want := range map[string]looked{
		".":      {entry(t, root, ".", true, "top"), []string{"closed", "d"}, nil},
		"d":      {entry(t, root, "d", false, "other", "secret"), []string{"d/sub"}, nil},
		"d/sub":  {entry(t, root, "d/sub", false, "file"), nil, nil},
		"closed": {entry(t, root, "closed", true), nil, nil},
		"none":   {err: errGone}, "top": {err: errGone}, "top/in": {err: errGone}, "link": {err: errGone}, "link/sub": {err: errGone},
		"..": {err: &fs.PathError{Op: "open", Path: "..", Err: unix.EXDEV}},
		long: {err: &fs.PathError{Op: "open", Path: long, Err: unix.ENAMETOOLONG}},
	} {
		if diff := want.diff(look(w, path)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", path, diff)
		}
	}
}

// TestLookWithoutFile checks that a directory from which a file vanishes while it is read is read
// again by the next survey, and that its other files are found.
func TestLookWithoutFile(t *testing.T) {
	t.Parallel()
	root := tree(t)
	whole := entry(t, root, "d", false, "other", "secret")
	w := walkOf(t, root)
	private := 0
	for n := 1; n <= 4; n++ {
		var got looked
		failed, err := calltest.FailNth(t, unix.SYS_NEWFSTATAT, n, unix.ENOENT, func() error { got = look(w, "d"); return got.err })
		must.Do(t, err)
		private += len(got.d.files)
		want := looked{whole, []string{"d/known", "d/sub"}, nil}
		want.d.changed, want.d.files, got.d.files = 0, nil, nil
		if diff := want.diff(got); diff != "" || !failed {
			t.Errorf("file %d of 4 vanished: %v (-want +got):\n%s", n, failed, diff)
		}
	}
	if private != 2+2+1+1 {
		t.Errorf("got %d private files, want both of them if a public one vanishes, and one otherwise", private)
	}
}

// TestCompare checks what makes a directory differ from its entry in an earlier survey.
func TestCompare(t *testing.T) {
	t.Parallel()
	root := tree(t)
	w := walkOf(t, root)
	d := entry(t, root, "d", false)
	unknown, later, replaced := d, d, d
	unknown.changed, later.changed, replaced.inode = 0, d.changed+1, d.inode+1
	for name, tt := range map[string]struct {
		d    directory
		want state
	}{
		"the same":                  {d, same},
		"an unknown time":           {unknown, changed},
		"another time":              {later, changed},
		"another directory":         {replaced, changed},
		"no file":                   {directory{path: "none", changed: 1}, gone},
		"a file":                    {entry(t, root, "top", false), gone},
		"a link":                    {entry(t, root, "link", false), gone},
		"a file that has a new one": {directory{path: "top", changed: 1}, gone},
	} {
		if got := w.compare(&tt.d); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

// TestSettled checks from which age on the time of a change is kept.
func TestSettled(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 5)
	w := &walk{now: now}
	for age, known := range map[time.Duration]bool{
		-time.Hour: false, 0: false, 2*time.Second - 1: false, 2 * time.Second: true, 2*time.Second + 1: true, time.Hour: true,
	} {
		at := now.Add(-age).UnixNano()
		want := int64(0)
		if known {
			want = at
		}
		if got := w.settled(at); got != want {
			t.Errorf("a change %v ago: got %d, want %d", age, got, want)
		}
	}
}
