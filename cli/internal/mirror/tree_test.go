package mirror

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// vanished is an entry of a directory that was removed, or that cannot be read.
type vanished struct {
	fs.DirEntry

	err error
}

func (v vanished) Info() (fs.FileInfo, error) { return nil, v.err }

// TestLocalEntry checks the description of each kind of entry, and the errors of entries that went or cannot be read.
func TestLocalEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Unix(1_000_000_000, 5)
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o640))
	must.Do(t, os.Chtimes(filepath.Join(dir, "file"), at, at))
	must.Do(t, os.Mkdir(filepath.Join(dir, "dir"), 0o750))
	must.Do(t, os.Symlink("file", filepath.Join(dir, "link")))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	got := map[string]entry{}
	for _, d := range entries {
		e, err := localEntry(root, d.Name(), d)
		must.Do(t, err)
		got[d.Name()] = e
	}
	if e := got["file"]; e.kind != 0 || e.perm != 0o640 || e.size != 4 || !e.modTime.Equal(at) {
		t.Errorf("file: got %+v", e)
	}
	if e := got["dir"]; e.kind != fs.ModeDir || e.perm != 0o750 || !e.isDir() {
		t.Errorf("dir: got %+v", e)
	}
	if e := got["link"]; e.kind != fs.ModeSymlink || e.target != "file" || e.isDir() {
		t.Errorf("link: got %+v", e)
	}
	for _, want := range []error{fs.ErrNotExist, fs.ErrPermission} {
		if _, err := localEntry(root, "file", vanished{entries[0], want}); !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	}
	link := entries[slices.IndexFunc(entries, func(d fs.DirEntry) bool { return d.Name() == "link" })]
	must.Do(t, os.Remove(filepath.Join(dir, "link")))
	if _, err := localEntry(root, "link", link); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link that went: got error %v", err)
	}
}

// TestScanWhileItChanges checks that entries that go during a scan are left out, and that another failure ends the scan.
func TestScanWhileItChanges(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for name, tt := range map[string]struct {
		visit func(dir, at string) error // before a directory is read
		want  []string
		is    error
	}{
		"quiet":                {func(string, string) error { return nil }, []string{ignoreFile, "a", "a/b", "z"}, nil},
		"removed, with others": {func(dir, at string) error { return os.RemoveAll(filepath.Join(at, dir, "z")) }, []string{ignoreFile, "a", "a/b"}, nil},
		"gone at the watch":    {func(string, string) error { return &fs.PathError{Op: "watch", Path: "x", Err: fs.ErrNotExist} }, []string{ignoreFile, "a", "a/b", "z"}, nil},
		"removed by the watch": {func(dir, at string) error {
			if dir == "." {
				return nil
			}
			return os.RemoveAll(filepath.Join(at, dir))
		}, []string{ignoreFile, "a", "z"}, nil},
		"no watch": {func(string, string) error { return mine }, nil, mine},
	} {
		dir := t.TempDir()
		must.Do(t, os.MkdirAll(filepath.Join(dir, "a"), 0o700))
		for file, text := range map[string]string{"a/b": "", "z": "", "q.log": "", ignoreFile: "*.log\n"} {
			must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		root, err := os.OpenRoot(dir)
		must.Do(t, err)
		got, err := scanLocal(root, newRules(nil), nil, func(at string) error { return tt.visit(at, dir) }, func(name, why string) { t.Errorf("%s is skipped: %s", name, why) })
		if !errors.Is(err, tt.is) || err == nil && !slices.Equal(slices.Sorted(maps.Keys(got)), tt.want) {
			t.Errorf("%s: got %v and error %v, want %v and %v", name, got, err, tt.want, tt.is)
		}
		must.Do(t, root.Close())
		if _, err := scanLocal(root, newRules(nil), nil, nil, nil); err == nil {
			t.Errorf("%s: a directory that cannot be read is no error", name)
		}
	}
}

// TestIgnoreFileKinds checks that only a regular file has rules.
func TestIgnoreFileKinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, sub := range []string{"none", "file", "link", "dir/" + ignoreFile} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "file", ignoreFile), []byte("x\n\n#y\n"), 0o600))
	must.Do(t, os.Symlink("../file/"+ignoreFile, filepath.Join(dir, "link", ignoreFile)))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	for sub, want := range map[string]bool{"none": false, "file": true, "link": false, "dir": false} {
		r := newRules(nil)
		must.Do(t, readIgnoreFile(root, sub, r))
		if got := r.ignored(sub+"/x", false); got != want || r.ignored(sub+"/#y", false) {
			t.Errorf("%s: ignored is %v, want %v, and no comment as a pattern", sub, got, want)
		}
	}
	must.Do(t, root.Close())
	if err := readIgnoreFile(root, "file", newRules(nil)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want that the directory is closed", err)
	}
}

// TestRemoveLocal checks that only a directory that is not empty may stay.
func TestRemoveLocal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "full"), 0o700))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "empty"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "full", "f"), nil, 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "g"), nil, 0o600))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	must.Do(t, removeLocal(root, []string{"none", "full", "empty", "g"}))
	left, err := os.ReadDir(dir)
	if must.Do(t, err); len(left) != 1 || left[0].Name() != "full" {
		t.Errorf("left are %v, want the directory that is not empty", left)
	}
	if err := removeLocal(root, []string{"../x"}); err == nil {
		t.Error("an entry outside is no error")
	}
	for name, want := range map[string]error{"full": nil, "new": nil, "none/below": fs.ErrNotExist} {
		if err := makeDir(root, name); !errors.Is(err, want) {
			t.Errorf("directory %s: got error %v, want %v", name, err, want)
		}
	}
	must.Do(t, os.Chmod(filepath.Join(dir, "full"), 0o550))
	must.Do(t, makeDir(root, "full"))
	if info, err := root.Stat("full"); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("got %v and error %v, want a directory that allows files", info, err)
	}
	if err := makeDir(root, "full/f"); err == nil || err.Error() != "mkdir full/f: "+syscall.ENOTDIR.Error() {
		t.Errorf("a file in place of a directory: got error %v", err)
	}
	must.Do(t, root.Close())
	if err := removeLocal(root, []string{"full"}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want that the directory is closed", err)
	}
}
