package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// detailed is like listing, with modes, times and numbers of names.
func detailed(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := listing(t, dir)
	for name := range all {
		var stat unix.Stat_t
		must.Do(t, unix.Lstat(filepath.Join(dir, name), &stat))
		all[name] += fmt.Sprintf(" %o", stat.Mode)
		if stat.Mode&unix.S_IFMT != unix.S_IFLNK { // an archive's times of links are not kept
			all[name] += fmt.Sprintf(" %d.%09d", stat.Mtim.Sec, stat.Mtim.Nsec)
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFREG {
			all[name] += fmt.Sprintf(" %d", stat.Nlink)
		}
	}
	return all
}

// TestEachCallFails makes each system call of a kind fail in turn while a tree is packed, and while an
// archive with each kind of entry is unpacked. Either the error comes out, or the result is the same as
// without the failure. openRoot checks that nothing stays open.
func TestEachCallFails(t *testing.T) {
	t.Parallel()
	stamp := time.Unix(1_000_000_000, 0)
	entry := func(name string, kind byte, mode int64, target string) tar.Header {
		h := tar.Header{Name: name, Typeflag: kind, Mode: mode, Linkname: target, ModTime: stamp}
		if kind == tar.TypeReg {
			h.Size = 5
		}
		return h
	}
	entries := archived(t, entry("1", tar.TypeReg, 0o600, ""), entry("sub/", tar.TypeDir, 0o710, ""), entry("sub/a/", tar.TypeDir, 0o500, ""),
		entry("sub/a/file", tar.TypeReg, 0o640, ""), entry("sub/a/link", tar.TypeSymlink, 0, "file"), entry("again", tar.TypeLink, 0, "sub/a/file"),
		entry("link", tar.TypeSymlink, 0, "1"), entry("link again", tar.TypeLink, 0, "link"), entry("link", tar.TypeReg, 0o600, ""),
		entry("1", tar.TypeLink, 0, "link")).Bytes()
	unpack := func(t *testing.T, dir string) (do func() error) {
		root := openRoot(t, dir)
		return func() error { return into(root, nil).Unpack(t.Context(), bytes.NewReader(entries)) }
	}
	from := t.TempDir()
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(from, "sub/a"), 0o700) })
	must.Do(t, unpack(t, from)())
	want := detailed(t, from)
	pack := func(t *testing.T, dir string) (do func() error) {
		root := openRoot(t, from)
		return func() error {
			out, err := os.Create(dir + ".tar")
			if err != nil {
				return err
			}
			return errors.Join((&Packer{Root: root}).Pack(t.Context(), out), out.Close())
		}
	}
	var packed bytes.Buffer
	must.Do(t, (&Packer{Root: openRoot(t, from)}).Pack(t.Context(), &packed))
	for _, tt := range []struct {
		step, call string
		number     uint32
	}{
		{"pack", "getdents64", unix.SYS_GETDENTS64}, {"pack", "readlinkat", unix.SYS_READLINKAT}, {"pack", "openat", unix.SYS_OPENAT},
		{"pack", "newfstatat", unix.SYS_NEWFSTATAT}, {"pack", "fstat", unix.SYS_FSTAT}, {"pack", "write", unix.SYS_WRITE}, {"pack", "read", unix.SYS_READ},
		{"unpack", "mkdirat", unix.SYS_MKDIRAT}, {"unpack", "openat", unix.SYS_OPENAT}, {"unpack", "newfstatat", unix.SYS_NEWFSTATAT},
		{"unpack", "linkat", unix.SYS_LINKAT}, {"unpack", "symlinkat", unix.SYS_SYMLINKAT}, {"unpack", "unlinkat", unix.SYS_UNLINKAT},
		{"unpack", "fchmod", unix.SYS_FCHMOD}, {"unpack", "fchmodat2", unix.SYS_FCHMODAT2}, {"unpack", "utimensat", unix.SYS_UTIMENSAT},
		{"unpack", "readlinkat", unix.SYS_READLINKAT},
	} {
		for n, failed := 1, true; failed; n++ {
			dir := filepath.Join(t.TempDir(), "dir")
			must.Do(t, os.Mkdir(dir, 0o700))
			do := pack(t, dir)
			if tt.step == "unpack" {
				do = unpack(t, dir)
			}
			var err error
			failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, do)
			switch {
			case err != nil:
				if !errors.Is(err, unix.EIO) || !failed {
					t.Errorf("%s %d failed, %v: got %v", tt.call, n, failed, err)
				}
			case tt.step == "pack":
				if got, err := os.ReadFile(dir + ".tar"); err != nil || !bytes.Equal(got, packed.Bytes()) {
					t.Errorf("%s %d failed, and the archive is another, with no error; %v", tt.call, n, err)
				}
			default:
				if diff := cmp.Diff(want, detailed(t, dir)); diff != "" {
					t.Errorf("%s %d failed, with no error (-want +got):\n%s", tt.call, n, diff)
				}
			}
			if n == 1 && !failed {
				t.Errorf("there was no %s", tt.call)
			}
			_ = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, _ error) error { return os.Chmod(name, 0o700) })
		}
	}
}
