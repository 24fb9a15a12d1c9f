package pinned

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Find returns the directory of the set, which `make deps` fetches. If the set was not fetched,
// Find skips the test at once, with [Skip]. Call Find before the test builds anything.
func (s Set) Find(t testing.TB) string {
	t.Helper()
	directory, err := s.directory()
	if _, seen := found.Load(directory); err == nil && !seen {
		err = check(directory)
	}
	if err != nil {
		Skip(t, "the packages %s, which this test needs, are not there: run make deps, which fetches them (%v)", s.Name, err)
	}
	found.Store(directory, true)
	return directory
}

// found contains the directories that this process has already checked. They are recorded because
// tests look up the same set many times.
var found sync.Map

// FindPython is like Find, for a set that [Python] returned. It returns the interpreter and the
// directory of the packages.
func (s Set) FindPython(t testing.TB) (interpreter, packages string) {
	t.Helper()
	directory := s.Find(t)
	python, err := prepared()
	if err != nil {
		t.Fatal(err)
	}
	return python.Python, filepath.Join(directory, "lib")
}

// check returns the reason why a directory cannot be used, or nil.
func check(directory string) error {
	content, err := os.ReadFile(filepath.Join(directory, complete))
	if err != nil {
		return err
	}
	sizes := map[string]int64{}
	if err := json.Unmarshal(content, &sizes); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(directory, complete), err)
	}
	for name, want := range sizes {
		info, err := os.Lstat(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		if got := info.Size(); got != want {
			return fmt.Errorf("%s was changed: it has %d bytes, and had %d", filepath.Join(directory, name), got, want)
		}
	}
	used.NoteUse(directory)
	return nil
}

// writeComplete records that a directory is complete.
func writeComplete(directory string) error {
	sizes := map[string]int64{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) == ".pyc" { // Python writes those again
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(directory, path)
		sizes[name] = info.Size()
		return err
	})
	if err != nil {
		return err
	}
	content, err := json.Marshal(sizes)
	return errors.Join(err, os.WriteFile(filepath.Join(directory, complete), content, 0o644))
}

// Program returns the path of the program name on this machine. debian is the Debian package that
// contains the program. If the program is not installed, the test is skipped with [Skip].
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, "%s is not there: run make deps, which installs Debian's package %s as root (%v)", name, debian, err)
	}
	return path
}

// Skip skips the test, with a reason. If CI=true, the test fails instead, because a test that is
// skipped in CI proves nothing.
func Skip(t testing.TB, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}
