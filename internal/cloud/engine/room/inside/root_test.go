//go:build linux

package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// inStage changes to a new directory with the directory root, in which these files are. A name of a
// directory ends with a slash. A text that begins with an arrow is the target of a link.
func inStage(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	umask := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(umask) })
	must.Do(t, os.Mkdir("root", 0o755))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join("root", name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		target, link := strings.CutPrefix(files[name], "->")
		switch {
		case strings.HasSuffix(name, "/"):
			must.Do(t, os.MkdirAll(path, 0o755))
		case link:
			must.Do(t, os.Symlink(target, path))
		default:
			must.Do(t, os.WriteFile(path, []byte(files[name]), 0o644))
		}
	}
}

// shown returns the modes, owners and contents of all files below a directory.
func shown(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var text []byte
		var target string
		switch {
		case info.Mode().IsRegular():
			text, err = os.ReadFile(path)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err = os.Readlink(path)
		}
		all[strings.TrimPrefix(path, dir+"/")] = strings.TrimSpace(fmt.Sprintf("%v %s%s", info.Mode(), text, target))
		return err
	}))
	return all
}

// ownerOf returns the ids of a file.
func ownerOf(t *testing.T, path string) string {
	t.Helper()
	var stat unix.Stat_t
	must.Do(t, unix.Lstat(path, &stat))
	return fmt.Sprintf("%d:%d", stat.Uid, stat.Gid)
}

// TestFilesInTheWay checks which files of a saved root or of an image give way to a directory or file
// that a sandbox needs, that no link is followed, and that the notes name them.
func TestFilesInTheWay(t *testing.T) { //nolint:paralleltest // it changes its directory
	const dir, link, text = "drwxr-xr-x", "Lrwxrwxrwx ", "-rw-r--r-- "
	real := func(path string, mode fs.FileMode) func(*built) error {
		return func(b *built) error { return b.makeReal(path, mode) }
	}
	aside := func(b *built) error { return b.moveAside("root", "a", isDirectory) }
	anew := func(*built) error { return writeAnew("root", "a", []byte("new"), 0o640) }
	for name, tt := range map[string]struct {
		files map[string]string
		do    func(*built) error
		want  map[string]string
		notes []string
		err   error
	}{
		"nothing":     {nil, real("/a/b", 0o777|fs.ModeSticky), map[string]string{"a": dir, "a/b": "dtrwxrwxrwx"}, nil, nil},
		"directories": {map[string]string{"a/b/c": "x"}, real("/a/b/", 0o700), map[string]string{"a": dir, "a/b": dir, "a/b/c": text + "x"}, nil, nil},
		"a link": {map[string]string{"a": "->/etc"}, real("/a/b", 0o700), map[string]string{"a": dir, "a/b": "drwx------", "a.saved1": link + "/etc"},
			[]string{"/a is now /a.saved1"}, nil},
		"a file whose next name is taken": {map[string]string{"a/b": "x", "a/b.saved1": "y"}, real("/a/b", 0o755),
			map[string]string{"a": dir, "a/b": dir, "a/b.saved1": text + "y", "a/b.saved2": text + "x"}, []string{"/a/b is now /a/b.saved2"}, nil},
		"a file in place of a file":        {map[string]string{"a": "x"}, aside, map[string]string{"a": text + "x"}, nil, nil},
		"nothing in place of a file":       {nil, aside, map[string]string{}, nil, nil},
		"a directory in place of a file":   {map[string]string{"a/b": "x"}, aside, map[string]string{"a.saved1": dir, "a.saved1/b": text + "x"}, []string{"/a is now /a.saved1"}, nil},
		"a file that is written anew":      {map[string]string{"a": "x"}, anew, map[string]string{"a": "-rw-r----- new"}, nil, nil},
		"a link that is written anew":      {map[string]string{"a": "->b", "b": "x"}, anew, map[string]string{"a": "-rw-r----- new", "b": text + "x"}, nil, nil},
		"nothing that is written anew":     {nil, anew, map[string]string{"a": "-rw-r----- new"}, nil, nil},
		"a directory that is written anew": {map[string]string{"a/": ""}, anew, map[string]string{"a": dir}, nil, unix.EISDIR},
	} {
		t.Run(name, func(t *testing.T) {
			inStage(t, tt.files)
			b := &built{}
			if err := tt.do(b); !errors.Is(err, tt.err) {
				t.Errorf("got error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, shown(t, "root")) + cmp.Diff(tt.notes, b.notes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	inStage(t, map[string]string{"a/b": "x"})
	b := &built{}
	failed, err := calltest.FailNth(t, unix.SYS_RENAMEAT2, 1, unix.EXDEV, func() error { return b.moveAside("root", "a", isDirectory) })
	if diff := cmp.Diff([]string{"/a was in the way, and is not shown"}, b.notes); !failed || err != nil || diff != "" || exists("root/a") {
		t.Errorf("a directory that cannot be renamed: got error %v, and it is left: %v (-want +got):\n%s", err, exists("root/a"), diff)
	}
	inStage(t, map[string]string{"etc/": ""})
	// The first look finds the file's type, and the second one is that of moveAside.
	failed, err = calltest.FailNth(t, unix.SYS_NEWFSTATAT, 2, unix.EIO, func() error { return b.writeAccounts("passwd", "text") })
	if !failed || !errors.Is(err, unix.EIO) || exists("root/etc/passwd") {
		t.Errorf("accounts in whose way nobody can look: got error %v, and they are written: %v", err, exists("root/etc/passwd"))
	}
}

// TestMendedSkeleton checks the files that a start adds to a root that was restored.
func TestMendedSkeleton(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, map[string]string{
		"etc": "->/tmp", "bin/": "", "lib/own": "x", "sbin": "->other", "etc.saved1": "y",
	})
	b := &built{}
	must.Do(t, b.mendSkeleton(&wire.InitSpec{Links: map[string]string{"/bin": "usr/bin", "/lib": "usr/lib", "/sbin": "usr/sbin", "/lib64": "usr/lib64"}}))
	const dir, link = "drwxr-xr-x", "Lrwxrwxrwx "
	want := map[string]string{
		"bin": link + "usr/bin", "lib": dir, "lib/own": "-rw-r--r-- x", "lib64": link + "usr/lib64", "sbin": link + "other",
		"dev": dir, "dev/pts": dir, "dev/shm": "dtrwxrwxrwx", "proc": "dr-xr-xr-x", "sys": "dr-xr-xr-x",
		"etc": dir, "etc.saved1": "-rw-r--r-- y", "etc.saved2": link + "/tmp", "run": dir, "tmp": "dtrwxrwxrwx",
		"etc/resolv.conf": "-rw-r--r-- nameserver " + listenerAddress.String(), "etc/hostname": "-rw-r--r--", "etc/hosts": "-rw-r--r--",
	}
	for name, target := range deviceLinks {
		want[name[1:]] = link + target
	}
	if diff := cmp.Diff(want, shown(t, "root")) + cmp.Diff([]string{"/etc is now /etc.saved2"}, b.notes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	spec := &wire.InitSpec{Layers: []wire.Layer{{}}} // makeMissing was called for the upper directory
	if err := (&built{}).mendSkeleton(spec); err != nil {
		t.Errorf("with layers: got error %v, want what is there to stay", err)
	}
	for path, lost := range map[string]bool{"/opt/a/b": true, "/opt": true, "/opt/ab": false, "/op": false, "/usr": false} {
		if err := checkLost(&wire.InitSpec{Trees: []string{"/opt/a"}}, path); (err != nil) != lost {
			t.Errorf("changes of %s, where /opt/a is shown: got error %v, want one: %v", path, err, lost)
		}
	}
}

// TestSkeleton checks the modes and owners of a new root.
func TestSkeleton(t *testing.T) { //nolint:paralleltest // it changes its directory
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for _, ranged := range []bool{true, false} {
		inStage(t, nil)
		spec := &wire.InitSpec{Runner: wire.Runner{Ranged: ranged}, Path: "/of/programs", Links: map[string]string{"/lib9": "usr/lib9"}, Trees: []string{guest.RootHome + "/python"}}
		must.Do(t, writeSkeleton(spec))
		got, want := shown(t, "root"), map[string]string{}
		for name, f := range etc(spec) {
			want[name[1:]] = strings.TrimSpace(fmt.Sprintf("%v %s", f.mode, f.text))
		}
		for name, target := range deviceLinks {
			want[name[1:]] = "Lrwxrwxrwx " + target
		}
		for _, d := range guest.Directories {
			mode := d.Mode
			if d.Path == guest.RootHome {
				mode |= 0o011
			}
			want[d.Path[1:]] = (mode | fs.ModeDir).String()
		}
		want["lib9"], want["var/run"], want["etc/mtab"] = "Lrwxrwxrwx usr/lib9", "Lrwxrwxrwx /run", "Lrwxrwxrwx /proc/self/mounts"
		for home, owner := range map[string]string{"/etc/skel": "0:0", guest.RootHome: "0:0", guest.UserHome: fmt.Sprintf("%d:%d", protocol.UserID, protocol.UserID)} {
			if !ranged {
				owner = "0:0"
			}
			for name, text := range homeFiles {
				want[home[1:]+"/"+name] = strings.TrimSpace("-rw-r--r-- " + text)
				if got := ownerOf(t, "root"+home+"/"+name); got != owner {
					t.Errorf("ranged %v: %s in %s belongs to %s, want %s", ranged, name, home, got, owner)
				}
			}
			if got := ownerOf(t, "root"+home); got != owner {
				t.Errorf("ranged %v: %s belongs to %s, want %s", ranged, home, got, owner)
			}
		}
		if ranged && exists(guest.PackageTree) {
			want["etc/apt/apt.conf.d/50sandbox"] = strings.TrimSpace("-rw-r--r-- " + aptConf)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("ranged %v: %s is %q, want %q", ranged, name, got[name], text)
			}
		}
		if _, apt := got["etc/apt/sources.list.d"]; apt != (ranged && exists(guest.PackageTree)) {
			t.Errorf("ranged %v: apt has its directories: %v", ranged, apt)
		}
	}
}

// TestCopiedFiles checks which files of the host are copied into a new root.
func TestCopiedFiles(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, nil)
	from := t.TempDir()
	must.Do(t, os.MkdirAll("root"+from, 0o755))
	sized := func(name string, size int64) {
		must.Do(t, errors.Join(os.WriteFile(from+"/"+name, nil, 0o644), os.Truncate(from+"/"+name, size)))
	}
	sized("largest", maxCopied)
	sized("larger", maxCopied+1)
	must.Do(t, errors.Join(os.WriteFile(from+"/text", []byte("text"), 0o600), os.WriteFile(from+"/password", []byte("deb http://me:secret@example.com/"), 0o644),
		os.Symlink("text", from+"/link"), os.Mkdir(from+"/directory", 0o755)))
	for name, want := range map[string]struct{ copied, fails, apt bool }{
		"text": {true, false, true}, "link": {true, false, true}, "largest": {true, false, true}, "larger": {false, true, false},
		"directory": {false, true, false}, "none": {false, false, false}, "password": {true, false, false},
	} {
		to := "root/" + name
		if err := copyFile(from+"/"+name, to); (err != nil) != want.fails || exists(to) != want.copied {
			t.Errorf("%s: got error %v, and it is copied: %v, want %+v", name, err, exists(to), want)
		}
		if err := copyFile(from+"/"+name, to); want.copied && !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s again: got error %v", name, err)
		}
		to = "root" + from + "/" + name
		if err := copyAptFile(from + "/" + name); err != nil || exists(to) != want.apt {
			t.Errorf("%s of apt: got error %v, and it is copied: %v, want %v", name, err, exists(to), want.apt)
		}
		if !want.apt || name == "largest" {
			continue
		}
		if text, err := os.ReadFile(to); err != nil || string(text) != "text" || shown(t, "root")[name] != "-rw-r--r-- text" {
			t.Errorf("%s: got the copy %q and error %v", name, text, err)
		}
	}
}
