//go:build linux

package cgroup

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// groupOf returns a directory with the files of a group. The kernel's groups of version 2 have few
// controllers on most machines, and none of them lets a test choose what it refuses.
func groupOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// checkFiles compares the files below a directory.
func checkFiles(t *testing.T, name, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		file, _ := filepath.Rel(dir, path)
		got[file] = string(text)
		return err
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// with returns files with other ones added.
func with(files map[string]string, more ...string) map[string]string {
	files = maps.Clone(files)
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

// TestWrite checks that no file is made, and that a file may only be missing if its setting is optional.
func TestWrite(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": "long text", "c": ""}
	dir := groupOf(t, files)
	h := Hierarchy{Dir: dir, Version: 2}
	must.Do(t, h.write([]setting{{"a", "1", false}, {"b", "2", true}, {"c", "3", true}}))
	want := map[string]string{"a": "1", "c": "3"}
	checkFiles(t, "optional", dir, want)
	must.Is(t, h.write([]setting{{"b", "2", false}, {"c", "4", true}}), fs.ErrNotExist)
	checkFiles(t, "not optional", dir, want)
	must.Do(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	must.Is(t, h.write([]setting{{"d", "2", true}, {"c", "4", true}}), unix.EISDIR)
	checkFiles(t, "refused", dir, want)
}

// TestSetMemory1 checks changes of the limits of version 1 that the kernel refuses in part: afterwards
// both limits are those before.
func TestSetMemory1(t *testing.T) {
	t.Parallel()
	const limit, both, used = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes"
	files := map[string]string{limit: "1000", both: "1000", used: "800\n"}
	for _, to := range []int64{700, 1000, 2000} {
		for n := 1; n <= 3; n++ {
			for _, as := range []unix.Errno{unix.EBUSY, unix.EIO} {
				g := &Group{Memory: Hierarchy{Dir: groupOf(t, files), Version: 1}}
				failed, err := calltest.FailNth(t, unix.SYS_WRITE, n, as, func() error { return g.SetMemory(1000, to) })
				if !failed {
					must.Do(t, err)
					text := map[int64]string{700: "700", 1000: "1000", 2000: "2000"}[to]
					checkFiles(t, "changed", g.Memory.Dir, with(files, limit, text, both, text))
					continue
				}
				inUse, is := errors.AsType[*engine.InUseError](err)
				right := is && *inUse == (engine.InUseError{Resource: "memory", Used: 800, Most: to})
				if as != unix.EBUSY {
					right = !is && errors.Is(err, as)
				}
				if !right {
					t.Errorf("to %d, write %d fails with %v: got %v", to, n, as, err)
				}
				checkFiles(t, "refused", g.Memory.Dir, files)
			}
		}
	}
}

// TestOrderOfMemory1 checks that the limit of memory is never above that of memory and swap, where one
// of them cannot be changed at all: the kernel refuses that.
func TestOrderOfMemory1(t *testing.T) {
	t.Parallel()
	const limit, both = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	for _, tt := range []struct {
		fixed, other, want string
		to                 int64
	}{
		{limit, both, "2000", 2000}, // it went first, and goes back last
		{limit, both, "1000", 500},
		{both, limit, "1000", 2000},
		{both, limit, "500", 500},
	} {
		g := &Group{Memory: Hierarchy{Dir: groupOf(t, map[string]string{tt.other: "as made"}), Version: 1}}
		must.Do(t, os.Mkdir(filepath.Join(g.Memory.Dir, tt.fixed), 0o700))
		must.Is(t, g.SetMemory(1000, tt.to), unix.EISDIR)
		checkFiles(t, tt.fixed+" is fixed", g.Memory.Dir, map[string]string{tt.other: tt.want})
	}
}

// TestSetMemoryFails makes each call of a change of version 2 fail. The limit is then as before or as it
// was to be, and memory.high is removed.
func TestSetMemoryFails(t *testing.T) {
	t.Parallel()
	files := map[string]string{"memory.max": "1000", "memory.high": "max", "memory.current": "600\n", "memory.swap.max": "0"}
	for _, number := range []uint32{unix.SYS_OPENAT, unix.SYS_WRITE, unix.SYS_READ} {
		for n, failed := 1, true; failed; n++ {
			g := &Group{Memory: Hierarchy{Dir: groupOf(t, files), Version: 2}}
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return g.SetMemory(1000, 700) })
			if errors.Is(err, unix.EIO) != failed {
				t.Errorf("call %d of number %d failed, %v: got %v", n, number, failed, err)
			}
			text, err := os.ReadFile(filepath.Join(g.Memory.Dir, "memory.current"))
			if must.Do(t, err); string(text) != "600\n" {
				t.Errorf("memory.current was written: %q", text)
			}
			if _, err := os.Stat(filepath.Join(g.Memory.Dir, "memory.limit_in_bytes")); err == nil {
				t.Error("a file of version 1 was made")
			}
		}
	}
	g := &Group{Memory: Hierarchy{Dir: groupOf(t, with(files, "memory.current", "many")), Version: 2}}
	if err := g.SetMemory(1000, 700); err == nil || !strings.Contains(err.Error(), "memory.current") {
		t.Errorf("an unknown use: got %v, want an error with the file", err)
	}
	checkFiles(t, "an unknown use", g.Memory.Dir, with(files, "memory.current", "many"))
}

// TestShares checks the files of processor time by the version.
func TestShares(t *testing.T) {
	t.Parallel()
	one := map[string]string{"cpu.shares": "", "cpu.cfs_period_us": "", "cpu.cfs_quota_us": ""}
	two := map[string]string{"cpu.weight": "", "cpu.max": ""}
	for version, want := range map[int][3]map[string]string{
		1: {with(one, "cpu.shares", "64"), with(one, "cpu.shares", "1024"), with(one, "cpu.shares", "1024", "cpu.cfs_period_us", "100000", "cpu.cfs_quota_us", "250000")},
		2: {with(two, "cpu.weight", "6"), with(two, "cpu.weight", "100"), with(two, "cpu.weight", "100", "cpu.max", "250000 100000")},
	} {
		files := map[int]map[string]string{1: one, 2: two}[version]
		g := &Group{CPU: Hierarchy{Dir: groupOf(t, files), Version: version}}
		for i, change := range []func() error{
			func() error { return g.Yield(true) },
			func() error { return g.Yield(false) },
			func() error { return g.SetCPUs(2.5) },
		} {
			must.Do(t, change())
			checkFiles(t, "a change", g.CPU.Dir, want[i])
		}
		g.CPU.Dir = filepath.Join(g.CPU.Dir, "gone")
		must.Is(t, g.Yield(true), fs.ErrNotExist)
		must.Is(t, g.SetCPUs(1), fs.ErrNotExist)
	}
	must.Do(t, (&Group{}).Yield(true)) // no group limits processors
}

// TestAdd checks that only the groups of version 2 are joined as a process.
func TestAdd(t *testing.T) {
	t.Parallel()
	first, second := groupOf(t, map[string]string{"tasks": "", "cgroup.procs": ""}), groupOf(t, map[string]string{"cgroup.procs": ""})
	g := &Group{Dirs: []Hierarchy{{first, 1}, {second, 2}}}
	must.Do(t, g.Add(42))
	checkFiles(t, "version 1", first, map[string]string{"tasks": "", "cgroup.procs": ""})
	checkFiles(t, "version 2", second, map[string]string{"cgroup.procs": "42"})
	g.Dirs = append(g.Dirs, Hierarchy{filepath.Join(second, "gone"), 2})
	must.Is(t, g.Add(42), fs.ErrNotExist)

	placement, err := g.OpenPlacement()
	must.Do(t, err)
	if len(placement) != 1 || placement[0].Name() != filepath.Join(first, "tasks") {
		t.Errorf("got %d files of the placement, want that of version 1", len(placement))
	}
	below := &Groups{byController: map[string]Hierarchy{"memory": {filepath.Join(first, "e2bctl"), 1}, "pids": {filepath.Join(second, "e2bctl"), 2}}}
	home, err := below.OpenHome()
	must.Do(t, err)
	if len(home) != 1 || home[0].Name() != filepath.Join(first, "tasks") {
		t.Errorf("got %d files of the home, want that of version 1", len(home))
	}
	for _, f := range append(placement, home...) {
		must.Do(t, f.Close())
	}
}
