//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpenFails checks that no file stays open if one of them cannot be opened.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	dirs := []Hierarchy{{Dir: t.TempDir(), Version: 1}, {Dir: t.TempDir(), Version: 2}, {Dir: filepath.Join(t.TempDir(), "gone"), Version: 2}}
	tasks, processes := filepath.Join(dirs[0].Dir, "tasks"), filepath.Join(dirs[1].Dir, "cgroup.procs")
	for _, name := range []string{tasks, processes} {
		must.Do(t, os.WriteFile(name, nil, 0o600))
	}
	isOpen := func(name string) bool {
		links, err := filepath.Glob("/proc/self/fd/*")
		must.Do(t, err)
		return slices.ContainsFunc(links, func(link string) bool {
			to, err := os.Readlink(link)
			return err == nil && to == name
		})
	}
	files, err := (&Group{Dirs: dirs[:2]}).Open()
	must.Do(t, err)
	if len(files) != 2 || !isOpen(tasks) || !isOpen(processes) {
		t.Fatalf("got %d files, want one of each group", len(files))
	}
	for _, f := range files {
		must.Do(t, f.Close())
	}
	if files, err := (&Group{Dirs: dirs}).Open(); !errors.Is(err, os.ErrNotExist) || files != nil {
		t.Errorf("got %v, %v, want an error that the group is gone", files, err)
	}
	if isOpen(tasks) || isOpen(processes) {
		t.Error("files are open after the error")
	}
}
