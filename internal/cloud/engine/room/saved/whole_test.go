//go:build linux

package saved

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// described describes a tree: everything about each file that is to be the same after it was saved.
func described(t *testing.T, top string, firstID uint32) map[string]string {
	t.Helper()
	got, first := map[string]string{}, map[uint64]string{}
	must.Do(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		must.Do(t, err)
		var stat unix.Stat_t
		must.Do(t, unix.Lstat(path, &stat))
		name, _ := filepath.Rel(top, path)
		text := fmt.Sprintf("mode %o owner %d:%d modified %d.%09d", stat.Mode, stat.Uid-firstID, stat.Gid-firstID, stat.Mtim.Sec, stat.Mtim.Nsec)
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(path)
			must.Do(t, err)
			// The file was not used before this, so it has the time that it was given.
			must.Do(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{stat.Atim, stat.Mtim}, 0))
			text += fmt.Sprintf(" used %d.%09d, %d bytes, holes: %v, %q", stat.Atim.Sec, stat.Atim.Nsec, stat.Size, stat.Blocks*512 < stat.Size, bytes.Trim(content, "\x00"))
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			must.Do(t, err)
			text += " to " + target
		case unix.S_IFIFO:
			text += fmt.Sprintf(" used %d.%09d", stat.Atim.Sec, stat.Atim.Nsec)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR && stat.Nlink > 1 {
			if first[stat.Ino] == "" {
				first[stat.Ino] = name
			}
			text += fmt.Sprintf(" one of %d, as %s", stat.Nlink, first[stat.Ino])
		}
		got[name] = text + attributes(path)
		return nil
	}))
	return got
}

// attributes describes the extended attributes of a file.
func attributes(path string) (text string) {
	list := make([]byte, 1<<10)
	n, _ := unix.Llistxattr(path, list)
	names := strings.Split(strings.TrimSuffix(string(list[:max(n, 0)]), "\x00"), "\x00")
	slices.Sort(names)
	for _, name := range names {
		value := make([]byte, 1<<10)
		if n, err := unix.Lgetxattr(path, name, value); err == nil {
			text += fmt.Sprintf(" %s=%q", name, value[:n])
		}
	}
	return text
}

// saveAll makes a tree with every kind of file. The returned paths are of files that are not saved.
func saveAll(t *testing.T, firstID uint32) (dir string, left []string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, errors.Join(
		os.WriteFile(at("empty"), nil, 0o604),
		os.WriteFile(at("program"), []byte("run"), 0o755),
		os.WriteFile(at("holes"), []byte("begin"), 0o600),
		os.Truncate(at("holes"), 5<<20),
		os.MkdirAll(at("sub/deep"), 0o700),
		os.WriteFile(at("sub/deep/file"), []byte("text"), 0o640),
		os.Link(at("sub/deep/file"), at("file again")), os.Link(at("sub/deep/file"), at("sub/and again")),
		os.Symlink("/no/such", at("link")), os.Link(at("link"), at("sub/link again")),
		unix.Mkfifo(at("fifo"), 0o620), os.Link(at("fifo"), at("sub/fifo again")),
		unix.Mknod(at("gone"), unix.S_IFCHR|0o600, 0),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0),
	))
	left = []string{"socket"}
	f, err := os.OpenFile(at("holes"), os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = f.WriteAt([]byte("middle"), 3<<20)
	must.Do(t, errors.Join(err, f.Close()))
	_ = unix.Setxattr(at("program"), "user.mine", []byte("1"), 0) // not every file system has attributes
	_ = unix.Setxattr(at("sub"), "user.of a directory", nil, 0)
	if os.Geteuid() == 0 {
		must.Do(t, unix.Mknod(at("null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		left = append(left, "null")
		owner := firstID
		for _, name := range []string{".", "empty", "program", "holes", "sub", "sub/deep", "sub/deep/file", "link", "fifo", "gone"} {
			must.Do(t, unix.Lchown(at(name), int(owner), int(owner)+3))
			owner += 1001
		}
		_ = unix.Setxattr(at("program"), "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)
	}
	must.Do(t, errors.Join(unix.Chmod(at("empty"), 0o4604), unix.Chmod(at("sub/deep"), 0o1701), unix.Chmod(at("sub"), 0o2750)))
	var when int64 = 1_000_000_000
	for _, name := range []string{"empty", "program", "holes", "sub/deep/file", "link", "fifo", "gone", "sub/deep", "sub", "."} {
		times := []unix.Timespec{{Sec: when, Nsec: 7}, {Sec: when + 5, Nsec: 11}}
		must.Do(t, unix.UtimesNanoAt(unix.AT_FDCWD, at(name), times, unix.AT_SYMLINK_NOFOLLOW))
		when += 100
	}
	return dir, left
}

// TestWholeTree checks that every file, and everything about it, is the same after it was saved.
func TestWholeTree(t *testing.T) {
	t.Parallel()
	firstID := uint32(0)
	if os.Geteuid() == 0 {
		firstID = 20_000
	}
	from, left := saveAll(t, firstID)
	f, err := os.Open(from)
	must.Do(t, err)
	defer f.Close()
	var data bytes.Buffer
	must.Do(t, Write(&data, "test", []Section{{Name: "part", Dir: f, Overlay: true, FirstID: firstID}}))
	to, links := t.TempDir(), t.TempDir()
	l, err := os.Open(links)
	must.Do(t, err)
	defer l.Close()
	var place *os.File
	must.Do(t, Read(&data, Options{Layout: "test", Links: l, Place: func(name string) (Place, error) {
		if name != "part" {
			t.Errorf("got the section %q, want part", name)
		}
		place, err = os.Open(to)
		return Place{Dir: place}, err
	}}))
	if err := place.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the section's directory: got %v, want that it is closed", err)
	}
	want := described(t, from, firstID)
	for _, name := range left {
		delete(want, name)
	}
	got := described(t, to, 0)
	// A directory with a removed file may be new, and then has a mark for that.
	got["."] = strings.Replace(got["."], ` user.overlay.origin=""`, "", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return len(all)
}
