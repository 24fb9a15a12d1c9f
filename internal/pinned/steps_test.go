package pinned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// standIn makes env and err the result of the search for the prepared Python, until the test ends.
func standIn(t *testing.T, env *pyenv.Env, err error) {
	t.Helper()
	before := prepared
	prepared = func() (*pyenv.Env, error) { return env, err }
	t.Cleanup(func() { prepared = before })
}

// TestPreparedPython checks that the commands of a set run with the prepared Python, that each
// version of Python has a set of its own, and that a missing Python is reported wherever it is needed.
func TestPreparedPython(t *testing.T) {
	set, runs := fake(t, "")
	withoutPython := set
	set.Commands = [][]string{append([]string{Interpreter}, set.Commands[0][1:]...)}
	errAway := errors.New("no Python today")
	standIn(t, &pyenv.Env{Python: "sh", Version: "3.13.1"}, nil)
	must.Do(t, set.Fetch(t.Context(), t.Output()))
	must.Do(t, withoutPython.Fetch(t.Context(), t.Output()))
	checkRuns(t, runs, 2)
	interpreter, packages := set.FindPython(t)
	if want := filepath.Join(set.Find(t), "lib"); interpreter != "sh" || packages != want {
		t.Errorf("got %q and %q, want sh and %s", interpreter, packages, want)
	}
	standIn(t, &pyenv.Env{Python: "sh", Version: "3.13.2"}, nil)
	checkMissing(t, set, "no such file")

	standIn(t, nil, errAway)
	checkMissing(t, set, errAway.Error())
	must.Is(t, set.Fetch(t.Context(), t.Output()), errAway)
	must.Is(t, run(t.Context(), t.TempDir(), set.Commands[0]), errAway)
	checkRuns(t, runs, 2)
	e := &ended{TB: t}
	func() {
		defer func() { _ = recover() }()
		withoutPython.FindPython(e)
	}()
	if e.failed != errAway.Error() || e.helpers != 2 { // FindPython and Find
		t.Errorf("without Python: got %q and %d helpers, want %v and 2", e.failed, e.helpers, errAway)
	}
}

// TestOnlyThePreparedPython checks that another Python of this machine does not replace the prepared one.
func TestOnlyThePreparedPython(t *testing.T) {
	fake(t, "")
	python := filepath.Join(t.TempDir(), "bin", "python3")
	must.Do(t, os.Mkdir(filepath.Dir(python), 0o700))
	answer := `{"executable":"` + python + `","real":"` + python + `","prefixes":["/usr"],"version":[3,13,1],"modules":[]}`
	must.Do(t, os.WriteFile(python, []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o700))
	t.Setenv(pyenv.Variable, python)
	if env, err := prepared(); err == nil || !strings.Contains(err.Error(), "the prepared Python is not there: ") || !strings.Contains(err.Error(), "lacks") {
		t.Errorf("got %+v and error %v, want an error with what is missing", env, err)
	}
}

// TestFinish checks that the files of Finish belong to the set, and that a set whose Finish fails is not used.
func TestFinish(t *testing.T) {
	set, _ := fake(t, "")
	errFull := errors.New("no room")
	set.Finish = func(string) error { return errFull }
	must.Is(t, set.Fetch(t.Context(), t.Output()), errFull)
	checkMissing(t, set, "no such file")
	set.Finish = func(directory string) error {
		return os.WriteFile(filepath.Join(directory, "lib", "finished"), []byte("yes"), 0o600)
	}
	must.Do(t, set.Fetch(t.Context(), t.Output()))
	finished := filepath.Join(set.Find(t), "lib", "finished")
	must.Do(t, os.Remove(finished))
	if err := check(filepath.Dir(filepath.Dir(finished))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v after the file of Finish was removed, want %v", err, fs.ErrNotExist)
	}
}

// watchedFS are pins that count the files that are open. The file called bad cannot be opened.
type watchedFS struct {
	fstest.MapFS
	bad  string
	open *int
}

func (w watchedFS) Open(name string) (fs.File, error) {
	if name == w.bad {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	file, err := w.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	*w.open++
	return &watchedFile{file, w.open}, nil
}

type watchedFile struct {
	fs.File
	open *int
}

func (f *watchedFile) Close() error {
	*f.open--
	return f.File.Close()
}

// TestDirectories checks that a directory depends on the names and the content of the pins and on the
// commands, that reading the pins leaves no file open, and that the reasons for no directory are reported.
func TestDirectories(t *testing.T) {
	set, runs := fake(t, "")
	open := 0
	pins := watchedFS{MapFS: fstest.MapFS{"a": {Data: []byte("one")}, "sub/b": {Data: []byte("two")}}, open: &open}
	set.Pins = pins
	seen := map[string]bool{}
	for i, one := range []Set{
		set,
		{Name: set.Name, Pins: set.Pins, Commands: [][]string{{"true"}}},
		{Name: set.Name, Pins: fstest.MapFS{"a": {Data: []byte("one")}, "sub/c": {Data: []byte("two")}}, Commands: set.Commands},
		{Name: set.Name, Pins: fstest.MapFS{"a": {Data: []byte("one")}, "sub/b": {Data: []byte("too")}}, Commands: set.Commands},
	} {
		directory, err := one.directory()
		must.Do(t, err)
		if seen[directory] = true; len(seen) != i+1 {
			t.Errorf("set %d is in %s like an earlier one, want a directory of its own", i, directory)
		}
	}
	if open != 0 {
		t.Errorf("%d pins are open, want none", open)
	}

	pins.bad = "sub/b"
	for _, bad := range []fs.FS{pins, os.DirFS(filepath.Join(t.TempDir(), "none"))} {
		set.Pins = bad
		checkMissing(t, set, "read its pins: ")
		if err := set.Fetch(t.Context(), t.Output()); err == nil || !strings.HasPrefix(err.Error(), "the packages fake: read its pins: ") {
			t.Errorf("got %v, want that the pins cannot be read", err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	checkMissing(t, set, "HOME")
	if err := set.Fetch(t.Context(), t.Output()); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("got %v, want that there is no cache", err)
	}
	checkRuns(t, runs, 0)
}

// TestPlaceInTheWay checks that Fetch names a file that is in the way of the directory of the sets or of its lock.
func TestPlaceInTheWay(t *testing.T) {
	set, runs := fake(t, "")
	directory, err := set.directory()
	must.Do(t, err)
	parent := filepath.Dir(directory)
	must.Do(t, os.MkdirAll(filepath.Join(parent, "lock"), 0o700))
	failed, ok := errors.AsType[*fs.PathError](set.Fetch(t.Context(), t.Output()))
	if !ok || failed.Path != filepath.Join(parent, "lock") {
		t.Errorf("with a directory as the lock: got %v, want an error of its path", failed)
	}
	must.Do(t, os.RemoveAll(parent))
	must.Do(t, os.WriteFile(parent, nil, 0o600))
	failed, ok = errors.AsType[*fs.PathError](set.Fetch(t.Context(), t.Output()))
	if !ok || failed.Op != "mkdir" || failed.Path != parent {
		t.Errorf("with a file as the parent: got %v, want an error of making it", failed)
	}
	checkRuns(t, runs, 0)
}
