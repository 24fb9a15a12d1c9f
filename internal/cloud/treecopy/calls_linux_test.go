package treecopy

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachFailedCallOfACopy makes each system call fail that a copy makes. The copy then returns the error.
func TestEachFailedCallOfACopy(t *testing.T) {
	t.Parallel()
	files := packed(t, "f/", "", "f/file", "text", "f/hole", strings.Repeat("\x00", 100<<10), "f/link", "->file", "f/hard", "=>f/file", "f/new/", "", "f/deep/file", "x").Bytes()
	for name, number := range map[string]uint32{
		"open": unix.SYS_OPENAT, "make a directory": unix.SYS_MKDIRAT, "make a link": unix.SYS_SYMLINKAT, "link": unix.SYS_LINKAT, "remove": unix.SYS_UNLINKAT,
		"write": unix.SYS_PWRITE64, "truncate": unix.SYS_FTRUNCATE, "set the mode of a file": unix.SYS_FCHMOD, "set the mode of a directory": unix.SYS_FCHMODAT, "set a time": unix.SYS_UTIMENSAT,
	} {
		for n, failed := 1, true; failed; n++ {
			to := t.TempDir() + "/to"
			must.Do(t, errors.Join(os.MkdirAll(to+"/new", 0o700), os.WriteFile(to+"/file", nil, 0o600)))
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
				return Place(bytes.NewReader(files), Placement{Source: "f", Target: to, Owner: &me, Parents: me})
			})
			switch {
			case failed && (err == nil || !strings.Contains(err.Error(), unix.EIO.Error())), !failed && err != nil:
				t.Errorf("%s, call %d, failed: %v; got error %v", name, n, failed, err)
			case !failed && n == 1:
				t.Errorf("no call to %s", name)
			}
		}
	}
	for number, answer := range map[uint32]string{unix.SYS_PWRITE64: "the disk of the sandbox is full", unix.SYS_FTRUNCATE: "the disk of the sandbox is full"} {
		for _, as := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
			want := answer
			if as == unix.EFBIG {
				want = "cannot be unpacked: "
			}
			_, err := calltest.FailNth(t, number, 1, as, func() error {
				return Place(bytes.NewReader(files), Placement{Source: "f", Target: t.TempDir() + "/to", Owner: &me, Parents: me})
			})
			if refused, ok := errors.AsType[*ArchiveError](err); !ok || !strings.Contains(refused.Reason, want) || strings.Contains(refused.Reason, "whole tar file") {
				t.Errorf("%v: got error %v, want %q", as, err, want)
			}
		}
	}
}

// TestEachFailedChangeOfAnOwner checks that a copy fails if the owner of one of its files or directories cannot be set, and
// that no owner is set that a file has already.
func TestEachFailedChangeOfAnOwner(t *testing.T) {
	t.Parallel()
	files := packed(t, "f/", "", "f/file", "text", "f/link", "->file", "f/dir/", "", "f/deep/file", "x").Bytes()
	place := func(owner Owner, n int) (failed bool, err error) {
		return calltest.FailNth(t, unix.SYS_FCHOWNAT, n, unix.EIO, func() error {
			return Place(bytes.NewReader(files), Placement{Source: "f", Target: t.TempDir() + "/up/to", Owner: &owner, Parents: owner})
		})
	}
	if called, err := place(me, 1); called || err != nil {
		t.Errorf("the owner as it is: got error %v and a change: %v, want none", err, called)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	const all = 7 // of up, up/to, file, link, dir, deep, and deep/file
	for n := 1; n <= all+1; n++ {
		failed, err := place(Owner{1001, 1002}, n)
		if failed != (n <= all) || errors.Is(err, unix.EIO) != failed {
			t.Errorf("change %d: failed %v, got error %v, want an error for each of %d", n, failed, err, all)
		}
		if !failed {
			must.Do(t, err)
		}
	}
}

// TestEachFailedCallOfAPack makes each system call fail with which files are found and packed. The error is returned.
func TestEachFailedCallOfAPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, Place(packed(t, "f/", "", "f/a", "a", "f/l", "->a", "f/d/", "", "f/d/e", "e"), Placement{Source: "f", Target: dir + "/from", Owner: &me, Parents: me}))
	must.Do(t, Pack(&bytes.Buffer{}, []string{dir + "/from"})) // the first use of a user's name reads a list of the machine
	for name, number := range map[string]uint32{
		"open": unix.SYS_OPENAT, "read a link": unix.SYS_READLINKAT, "list": unix.SYS_GETDENTS64, "read": unix.SYS_READ, "inspect": unix.SYS_NEWFSTATAT,
	} {
		for n, failed := 1, true; failed; n++ {
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
				found, err := Find(dir + "/from")
				if err != nil {
					return err
				}
				return Pack(&bytes.Buffer{}, found)
			})
			switch {
			case failed && (err == nil || !strings.Contains(err.Error(), unix.EIO.Error())), !failed && err != nil:
				t.Errorf("%s, call %d, failed: %v; got error %v", name, n, failed, err)
			case !failed && n == 1:
				t.Errorf("no call to %s", name)
			}
		}
	}
}

// TestPackLeavesOutTheMachine checks that the contents of directories of the machine are packed only if they are asked
// for by name, and the name of the root directory in an archive.
func TestPackLeavesOutTheMachine(t *testing.T) { //nolint:paralleltest // it changes the directories of the machine
	dir := t.TempDir()
	before := machine
	t.Cleanup(func() { machine = before })
	machine = []string{dir + "/from/machine"}
	must.Do(t, Place(packed(t, "f/", "", "f/a", "a", "f/machine/", "", "f/machine/b", "b", "f/other/", "", "f/other/c", "c"), Placement{Source: "f", Target: dir + "/from", Owner: &me, Parents: me}))
	for name, want := range map[string]string{
		"/from":         "a -rw-r----- a\nmachine drwxr-x--- \nother drwxr-x--- \nother/c -rw-r----- c\n",
		"/from/machine": "b -rw-r----- b\n",
	} {
		var archive bytes.Buffer
		to := t.TempDir()
		must.Do(t, Pack(&archive, []string{dir + name}))
		if open := fdtest.Open(t, dir); len(open) > 0 {
			t.Errorf("%s: %q stay open", name, open)
		}
		if first, err := tar.NewReader(bytes.NewReader(archive.Bytes())).Next(); err != nil || first.Name != path.Base(name)+"/" {
			t.Errorf("%s: got the first entry %+v and error %v, want a directory", name, first, err)
		}
		must.Do(t, Place(&archive, Placement{Target: to + "/", Parents: me}))
		if diff := cmp.Diff(want, tree(t, to)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCapabilitiesThatCannotBeSet checks that a copy fails without the capabilities of a file in the archive.
func TestCapabilitiesThatCannotBeSet(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	must.Do(t, errors.Join(w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o600, PAXRecords: map[string]string{capabilityRecord: "x"}}), w.Close()))
	_, err := calltest.FailNth(t, unix.SYS_FSETXATTR, 1, unix.EPERM, func() error {
		return Place(&archive, Placement{Target: t.TempDir() + "/a", Owner: &me, Parents: me})
	})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "setting the capabilities") {
		t.Errorf("got error %v, want it to name the capabilities", err)
	}
}

// removing is an empty content that removes the file to which it is copied.
type removing string

func (r removing) Read([]byte) (int, error) {
	if err := os.Remove(string(r)); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// TestRemovedCopy checks that a copy fails if another process removes the file before its owner is set.
func TestRemovedCopy(t *testing.T) {
	t.Parallel()
	to := t.TempDir() + "/file"
	w := placing{Placement: Placement{Owner: &Owner{}}}
	err := w.file(to, &tar.Header{ModTime: at}, removing(to))
	if failed, ok := errors.AsType[*fs.PathError](err); !ok || failed.Op != "lchown" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("got error %v, want that lchown does not find the file", err)
	}
}

// short is a writer that takes so many bytes.
type short struct {
	bytes.Buffer

	room int
}

var errShort = errors.New("no room")

func (s *short) Write(p []byte) (int, error) {
	if s.room -= len(p); s.room < 0 {
		return 0, errShort
	}
	return s.Buffer.Write(p)
}

// TestPackOfTheRoot checks that the root directory has a name in an archive.
func TestPackOfTheRoot(t *testing.T) {
	t.Parallel()
	archive := &short{room: 3 * 512} // the first entry
	must.Is(t, Pack(archive, []string{"/"}), errShort)
	if first, err := tar.NewReader(&archive.Buffer).Next(); err != nil || first.Name != "root/" {
		t.Errorf("got the first entry %+v and error %v, want root/", first, err)
	}
}

// TestPackWithoutRoom checks that Pack reports an archive that cannot be written, wherever it ends.
func TestPackWithoutRoom(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/file"
	must.Do(t, os.WriteFile(file, []byte("text"), 0o600))
	whole := &short{room: 1 << 20}
	must.Do(t, Pack(whole, []string{file}))
	for room := range whole.Len() / 512 {
		if err := Pack(&short{room: 512 * room}, []string{file}); !errors.Is(err, errShort) {
			t.Errorf("%d blocks: got error %v, want %v", room, err, errShort)
		}
	}
	if err := Pack(&short{}, []string{file}); err == nil || strings.Contains(err.Error(), "reading") {
		t.Errorf("got error %v, want that of the head of the file", err)
	}
}

// irregular describes a file of no known kind.
type irregular struct{ fs.FileInfo }

func (irregular) Mode() fs.FileMode { return fs.ModeIrregular }

// TestPackByKind checks that a file that was found twice is packed twice, and that a file of no known kind is an error.
func TestPackByKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, errors.Join(os.WriteFile(dir+"/file", []byte("text"), 0o600), os.Symlink("file", dir+"/link")))
	var archive bytes.Buffer
	must.Do(t, Pack(&archive, []string{dir + "/file", dir + "/link"}))
	entries := tar.NewReader(&archive)
	for _, name := range []string{"file", "link"} {
		if h, err := entries.Next(); err != nil || h.Name != name || h.Typeflag != tar.TypeReg || h.Size != 4 {
			t.Errorf("got %+v and error %v, want %s with its text", h, err, name)
		}
	}
	info, err := os.Stat(dir + "/file")
	must.Do(t, err)
	p := packing{to: tar.NewWriter(&archive)}
	if err := p.packFile(dir+"/file", "file", irregular{info}, nil); err == nil || !strings.Contains(err.Error(), "unknown file mode") {
		t.Errorf("got error %v, want an unknown mode", err)
	}
}
