//go:build linux

package inside

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestHiddenFiles checks the whiteouts of private files, and the directories that are made for them.
func TestHiddenFiles(t *testing.T) { //nolint:paralleltest // it changes its directory
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	inStage(t, map[string]string{
		"lower/a/b/secret": "x", "lower/a/other": "x", "lower/top": "x", "lower/link": "->a", "lower/c/secret": "x", "lower/d/e/secret": "x", "lower/kept": "x",
		"upper/c": "->a", "upper/d/": "", "upper/kept": "own",
	})
	at := unix.Timespec{Sec: 1000}
	must.Do(t, errors.Join(os.Chown("root/lower/a/b", 11, 12), os.Chmod("root/lower/a/b", 0o750|os.ModeSticky), unix.UtimesNanoAt(unix.AT_FDCWD, "root/lower/a/b", []unix.Timespec{at, at}, 0)))
	names := []string{"a/b/secret", "top", "link/b/secret", "c/secret", "d/e/secret", "gone/secret", "kept", "a/other/secret"}
	must.Do(t, whiteOut("root/lower", "root/upper", names))
	const dir = "drwxr-xr-x"
	want := map[string]string{
		"a": dir, "a/b": "dtrwxr-x---", "a/b/secret": "Dc---------", "top": "Dc---------", "c": "Lrwxrwxrwx a", "d": dir, "d/e": dir, "d/e/secret": "Dc---------", "kept": "-rw-r--r-- own",
	}
	if diff := cmp.Diff(want, shown(t, "root/upper")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var stat unix.Stat_t
	must.Do(t, unix.Lstat("root/upper/a/b", &stat))
	if stat.Mtim.Sec != at.Sec || ownerOf(t, "root/upper/a/b") != "11:12" {
		t.Errorf("the directory was changed at %d and belongs to %s, want what its original has", stat.Mtim.Sec, ownerOf(t, "root/upper/a/b"))
	}
	must.Do(t, unix.Lstat("root/upper/top", &stat))
	if stat.Rdev != 0 {
		t.Errorf("got the device %d, want 0", stat.Rdev)
	}
	if err := whiteOut("root/lower", "root/none", names[:1]); err == nil {
		t.Error("without an upper directory there is no error")
	}
	must.Do(t, os.WriteFile("list", []byte("/usr/a\x00/usr/b/c\x00\x00/usrs/d\x00/usr\x00"), 0o600))
	f, err := os.Open("list")
	must.Do(t, err)
	paths, err := readPrivate(f)
	if diff := cmp.Diff([]string{"/usr/a", "/usr/b/c", "/usrs/d", "/usr"}, paths); err != nil || diff != "" || f.Close() == nil {
		t.Errorf("got error %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"a", "b/c"}, below("/usr", paths)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMakeBelow checks the directories that are made for volumes: no link is followed, and each belongs
// to the owner of the one above.
func TestMakeBelow(t *testing.T) { //nolint:paralleltest // it changes its directory
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	inStage(t, map[string]string{"own/": "", "link": "->own", "file": "x"})
	must.Do(t, errors.Join(os.Chown("root/own", 21, 22), os.Chmod("root/own", 0o750)))
	for path, want := range map[string]string{
		"own": "21:22", "own/a/b": "21:22", "new": "0:0", "link": "/link is a link or a file there", "link/a": "/link is a link or a file there", "own/a/b/c": "21:22",
		"file": "/file is a link or a file there", "own/" + strings.Repeat("x", 256): "file name too long",
	} {
		dir, err := makeBelow("root", path)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %s", path, err, want)
			}
			continue
		}
		var got, named unix.Stat_t
		must.Do(t, errors.Join(unix.Fstat(int(dir.Fd()), &got), unix.Lstat(filepath.Join("root", path), &named), dir.Close()))
		if got.Ino != named.Ino || ownerOf(t, filepath.Join("root", path)) != want {
			t.Errorf("%s: got the directory %d of %s, want %d of %s", path, got.Ino, ownerOf(t, filepath.Join("root", path)), named.Ino, want)
		}
	}
	if got := shown(t, "root/own"); got["a"] != "drwxr-xr-x" || len(got) != 3 {
		t.Errorf("got the directories %v", got)
	}
	if _, err := makeBelow("none", "a"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without a root: got error %v", err)
	}
	one, err := os.Open("root/own")
	must.Do(t, err)
	defer one.Close()
	for name, same := range map[string]bool{"root/own": true, "root/new": false} {
		other, err := os.Open(name)
		must.Do(t, err)
		if err := isSame(int(one.Fd()), other); (err == nil) != same {
			t.Errorf("%s: got error %v, want that it is the same: %v", name, err, same)
		}
		must.Do(t, errors.Join(isSame(int(one.Fd()), nil), other.Close()))
		if err := isSame(int(one.Fd()), other); err == nil {
			t.Error("a closed directory is the same")
		}
	}
}

// TestOverwrite checks that a file of a sandbox is written only if it is a regular one, and wholly.
func TestOverwrite(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, map[string]string{"a/longer": "0123456789", "a/shorter": "0", "a/link": "->longer", "link": "->a", "a/directory/": ""})
	must.Do(t, unix.Mkfifo("root/a/pipe", 0o644))
	root, err := os.Open("root/a")
	must.Do(t, err)
	defer root.Close()
	reader, err := os.OpenFile("root/a/pipe", os.O_RDONLY|unix.O_NONBLOCK, 0) // otherwise the pipe could not be opened for writing
	must.Do(t, err)
	defer reader.Close()
	for name, fails := range map[string]bool{"longer": false, "shorter": false, "link": true, "none": false, "directory": true, "pipe": false, "../a/longer": true} {
		if err := overwrite(int(root.Fd()), name, []byte("text")); (err != nil) != fails {
			t.Errorf("%s: got error %v, want one: %v", name, err, fails)
		}
	}
	want := map[string]string{"longer": "-rw-r--r-- text", "shorter": "-rw-r--r-- text", "link": "Lrwxrwxrwx longer", "directory": "drwxr-xr-x", "pipe": "prw-r--r--"}
	if diff := cmp.Diff(want, shown(t, "root/a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if size, inodes := diskSize(10<<20 + 5); size != "10485765" || inodes != "10240" {
		t.Errorf("got a disk of %s bytes and %s inodes", size, inodes)
	}
}
