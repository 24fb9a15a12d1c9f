//go:build unix

package mounts

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// tree creates a directory tree. Its directory "in" is allowed, and there are files inside and
// outside of it.
func tree(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	in := filepath.Join(top, "in")
	err := errors.Join(
		os.MkdirAll(filepath.Join(in, "a", "b"), 0o755), os.Mkdir(filepath.Join(top, "inside-not"), 0o755), os.Mkdir(filepath.Join(top, "out"), 0o755),
		os.WriteFile(filepath.Join(in, "a", "name"), []byte("a"), 0o600), os.WriteFile(filepath.Join(top, "out", "name"), []byte("out"), 0o600),
		os.Symlink(in, filepath.Join(top, "link")), os.Symlink("../out", filepath.Join(in, "climbs")), os.Symlink("/", filepath.Join(in, "root")),
		os.Symlink("a", filepath.Join(in, "stays")), os.Symlink("../../out", filepath.Join(in, "a", "deep")), syscall.Mkfifo(filepath.Join(in, "pipe"), 0o600),
	)
	must.Do(t, err)
	return top
}

func open(t *testing.T, o Options) *Set {
	t.Helper()
	s, err := Open(o)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// nameIn returns the text of the file "name" in an open directory.
func nameIn(t *testing.T, dir *os.File) string {
	t.Helper()
	fd, err := unix.Openat(int(dir.Fd()), "name", unix.O_RDONLY, 0)
	must.Do(t, err)
	f := os.NewFile(uintptr(fd), "name")
	defer f.Close()
	text, err := io.ReadAll(f)
	must.Do(t, err)
	return string(text)
}

func TestFind(t *testing.T) {
	t.Parallel()
	top := tree(t)
	s := open(t, Options{Allow: []Allowed{{Dir: filepath.Join(top, "link")}, {Dir: filepath.Join(top, "inside-not"), Writable: true}, {Dir: filepath.Join(top, "in", "a"), Writable: true}}})
	for _, tt := range []struct {
		dir      string
		writable bool
		denied   string // text of the error; "": the directory is allowed
	}{
		{dir: "in"}, {dir: "link"}, {dir: "in/a"}, {dir: "link/a/b"}, {dir: "in/stays"}, {dir: "inside-not", writable: true},
		{dir: "in/a", writable: true}, {dir: "in/a/b", writable: true},
		{dir: "in", writable: true, denied: "read-only"},
		{dir: "out", denied: "none that is allowed"}, {dir: "", denied: "none that is allowed"}, {dir: "inside", denied: "none that is allowed"},
		{dir: "in/climbs", denied: "cannot be opened"}, {dir: "in/root/etc", denied: "cannot be opened"}, {dir: "in/a/deep", denied: "cannot be opened"},
		{dir: "in/a/name", denied: "cannot be opened"}, {dir: "in/pipe", denied: "cannot be opened"}, {dir: "in/gone", denied: "no such file"},
	} {
		got, err := s.Find(Mount{Dir: filepath.Join(top, tt.dir), Path: "/x", Writable: tt.writable})
		denied, is := errors.AsType[*DeniedError](err)
		switch {
		case tt.denied == "" && err != nil:
			t.Errorf("%s: got error %v", tt.dir, err)
		case tt.denied == "":
			where, err := os.Stat(filepath.Join(top, tt.dir))
			must.Do(t, err)
			if is, err := os.Stat(got.Dir); got.Writable != tt.writable || got.Path != "/x" || err != nil || !os.SameFile(is, where) {
				t.Errorf("%s: got %+v, want it as it was asked for", tt.dir, got)
			}
			got.File.Close()
		case !is || !strings.Contains(denied.Error(), tt.denied) || !strings.Contains(denied.Error(), tt.dir):
			t.Errorf("%s: got error %v, want a *DeniedError with %q", tt.dir, err, tt.denied)
		}
	}
	for _, dir := range []string{"relative", filepath.Join(top, "in") + "/../out", filepath.Join(top, "in") + "/", "", "/../" + top} {
		if _, err := s.Find(Mount{Dir: dir, Path: "/x"}); err == nil || !strings.Contains(err.Error(), "clean absolute path") {
			t.Errorf("%q: got error %v, want it denied", dir, err)
		}
	}
}

// TestRenamed checks that a set keeps the directories that it opened, even if their names later
// lead to other directories.
func TestRenamed(t *testing.T) {
	t.Parallel()
	top := tree(t)
	in := filepath.Join(top, "in")
	s := open(t, Options{All: []Mount{{Dir: filepath.Join(in, "a"), Path: "/a"}}, Allow: []Allowed{{Dir: in}}})
	must.Do(t, errors.Join(os.Rename(in, in+".moved"), os.Symlink("out", in)))
	got, err := s.Find(Mount{Dir: filepath.Join(in, "a"), Path: "/x"})
	must.Do(t, err)
	defer got.File.Close()
	for _, f := range []*os.File{got.File, s.All()[0].File} {
		if text := nameIn(t, f); text != "a" {
			t.Errorf("got %q, want the directory that was there at the start", text)
		}
	}
}

// TestWritableAbove checks which paths are in a directory that sandboxes may change, also through links.
func TestWritableAbove(t *testing.T) {
	t.Parallel()
	top := tree(t)
	every := filepath.Join(top, "inside-not")
	s := open(t, Options{All: []Mount{{Dir: every, Path: "/x", Writable: true}}, Allow: []Allowed{{Dir: filepath.Join(top, "out")}, {Dir: filepath.Join(top, "in", "a"), Writable: true}}})
	must.Do(t, os.Symlink(filepath.Join(top, "in", "a", "name"), filepath.Join(top, "out", "to-name")))
	for path, want := range map[string]string{
		"in/a/name": "in/a", "in/a/gone": "in/a", "link/a/gone": "in/a", "out/../in/a/b/gone": "in/a", "out/to-name": "in/a", "inside-not/s": "inside-not",
		"in/name": "", "out/name": "", "in/ab": "", "gone/s": "",
	} {
		if want != "" {
			want = filepath.Join(top, want)
		}
		if got := s.WritableAbove(top + "/" + path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	top := tree(t)
	for _, dir := range []string{filepath.Join(top, "gone"), filepath.Join(top, "in", "a", "name")} {
		if _, err := Open(Options{Allow: []Allowed{{Dir: dir}}}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("got error %v, want one that names %s", err, dir)
		}
		if _, err := Open(Options{Allow: []Allowed{{Dir: top}, {Dir: dir}}}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("got error %v, want one that names %s", err, dir)
		}
		if _, err := Open(Options{All: []Mount{{Dir: top, Path: "/x"}, {Dir: dir, Path: "/y"}}}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("got error %v, want one that names %s", err, dir)
		}
	}
	if left := fdtest.Open(t, top); len(left) > 0 {
		t.Errorf("left open: %q", left)
	}
	s, err := Open(Options{All: []Mount{{Dir: top, Path: "/x"}}, Allow: []Allowed{{Dir: top}}})
	must.Do(t, err)
	must.Do(t, s.Close())
	must.Is(t, s.Close(), os.ErrClosed)
	if left := fdtest.Open(t, top); len(left) > 0 {
		t.Errorf("left open after Close: %q", left)
	}
}
