package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpenDirRefuses checks that only a directory is opened, and no link to one.
func TestOpenDirRefuses(t *testing.T) {
	t.Parallel()
	top := tree(t)
	for name, want := range map[string]error{"gone": os.ErrNotExist, "link": syscall.ENOTDIR, "in/a/name": syscall.ENOTDIR} {
		file, err := OpenDir(engine.Mount{Dir: filepath.Join(top, name)})
		must.Is(t, err, want)
		if file != nil {
			t.Errorf("%s: got a file with the error", name)
		}
	}
	file, err := os.Open(filepath.Join(top, "out", "name"))
	must.Do(t, err)
	defer file.Close()
	_, err = OpenDir(engine.Mount{File: file})
	must.Is(t, err, syscall.ENOTDIR)
}

// TestShowRefuses checks that a directory is not mounted if a promise cannot be kept, and that
// nothing stays open: a directory of root for writing, and a file system that cannot map ids. Both
// are in /proc.
func TestShowRefuses(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	dir, err := OpenDir(engine.Mount{Dir: "/proc"})
	must.Do(t, err)
	defer dir.Close()
	self, err := os.Executable()
	must.Do(t, err)
	binary, err := os.Open(self)
	must.Do(t, err)
	defer binary.Close()
	before := namespacesAndMounts(t)
	for _, writable := range []bool{true, false} {
		mount, err := Show(dir, engine.Mount{Dir: "/proc", Path: "/data", Writable: writable}, binary, Owner{User: 1000, Group: 1000, Root: 1000})
		if _, ok := errors.AsType[*engine.LackError](err); !ok || mount != nil {
			t.Errorf("writable %v: got %v and error %v, want only an error for what is missing", writable, mount, err)
		}
	}
	if after := namespacesAndMounts(t); after != before {
		t.Errorf("%d namespaces and mounts are open, want %d", after, before)
	}
}

// namespacesAndMounts counts the open files of this process that are namespaces of users, or in /proc.
func namespacesAndMounts(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	for _, file := range all {
		if name, err := os.Readlink(file); err == nil && (strings.HasPrefix(name, "user:[") || name == "/" || name == "/proc") {
			n++
		}
	}
	return n
}
