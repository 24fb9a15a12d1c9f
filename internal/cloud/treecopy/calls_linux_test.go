package treecopy

import (
	"archive/tar"
	"bytes"
	"errors"
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
