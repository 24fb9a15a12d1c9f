//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestBounds checks that the lowest limit of the groups upwards counts, in files of either
// version.
func TestBounds(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"memory.limit_in_bytes":     "9223372036854771712", // no limit
		"a/memory.limit_in_bytes":   "536870912",
		"a/b/memory.limit_in_bytes": "1073741824",
		"cpu.cfs_quota_us":          "-1",
		"a/cpu.cfs_quota_us":        "150000",
		"a/cpu.cfs_period_us":       "100000",
		"a/b/cpu.cfs_quota_us":      "-1",
	} {
		putGroup(t, first, name, text)
	}
	for name, text := range map[string]string{
		"cgroup.controllers": "cpu memory", "a/memory.max": "max", "a/cpu.max": "75000 50000", "a/b/memory.max": "268435456", "a/b/cpu.max": "max 100000",
	} {
		putGroup(t, second, name, text)
	}
	outside := groupOf(t, map[string]string{"memory.max": "1", "a/cgroup.procs": "", "a/memory.max": "4611686018427387903", "a/cpu.max": "max 100000", "a/b/cgroup.procs": "", "a/b/memory.max": "4611686018427387904", "a/b/cpu.max": "75000 50000"})
	odd := func(files map[string]string) string { return groupOf(t, with(files, "cgroup.procs", "")) }
	for name, tt := range map[string]struct {
		mounts []mount
		want   engine.Bounds
	}{
		"nothing":              {nil, engine.Bounds{}},
		"version 1":            {[]mount{{first, filepath.Join(first, "a/b"), 1, []string{"cpu", "memory"}}}, engine.Bounds{MemoryBytes: 512 << 20, CPUs: 1.5}},
		"unlimited":            {[]mount{{first, first, 1, []string{"cpu", "memory"}}}, engine.Bounds{}},
		"version 2":            {[]mount{{second, filepath.Join(second, "a/b"), 2, nil}}, engine.Bounds{MemoryBytes: 256 << 20, CPUs: 1.5}},
		"up to the mount":      {[]mount{{outside, filepath.Join(outside, "a/b"), 2, nil}}, engine.Bounds{MemoryBytes: unlimited - 1, CPUs: 1.5}},
		"no processor time":    {[]mount{{"", odd(map[string]string{"cpu.cfs_quota_us": "0", "cpu.cfs_period_us": "100000"}), 1, nil}}, engine.Bounds{}},
		"no period":            {[]mount{{"", odd(map[string]string{"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "0"}), 1, nil}, {"", odd(map[string]string{"cpu.max": "100 0"}), 2, nil}}, engine.Bounds{}},
		"a period is lost":     {[]mount{{"", odd(map[string]string{"cpu.cfs_quota_us": "100000"}), 1, nil}, {"", odd(map[string]string{"cpu.max": "100"}), 2, nil}, {"", odd(map[string]string{"cpu.max": "100 x"}), 2, nil}}, engine.Bounds{}},
		"too many fields":      {[]mount{{"", odd(map[string]string{"cpu.max": "100 100 100"}), 2, nil}}, engine.Bounds{}},
		"of the other version": {[]mount{{"", odd(map[string]string{"cpu.max": "100 100", "memory.max": "1"}), 1, nil}, {"", odd(map[string]string{"cpu.cfs_quota_us": "1", "cpu.cfs_period_us": "1", "memory.limit_in_bytes": "1"}), 2, nil}}, engine.Bounds{}},
		"the way down":         {[]mount{{second, filepath.Join(second, "a"), 2, nil}}, engine.Bounds{CPUs: 1.5}},
	} {
		if got := boundsIn(tt.mounts); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestKillsAbove checks the count of kills if no group limits the memory of a sandbox:
// processes killed because the container had no more memory count, but not those killed before.
func TestKillsAbove(t *testing.T) {
	t.Parallel()
	for version, file := range map[int]string{1: "memory.oom_control", 2: "memory.events"} {
		dir := t.TempDir()
		putGroup(t, dir, file, "oom 3\noom_kill 3\n")
		g := &Groups{above: memoryGroup([]mount{{dir, dir, version, []string{"memory"}}})}
		s, err := g.Create("1", engine.Limits{})
		must.Do(t, err)
		if n := s.OOMKills(); n != 0 {
			t.Errorf("version %d: %d kills before the first", version, n)
		}
		putGroup(t, dir, file, "oom 4\noom_kill 5\n")
		if n := s.OOMKills(); n != 2 {
			t.Errorf("version %d: %d kills, want 2", version, n)
		}
		f, err := s.OpenOOMKills()
		if f == nil || err != nil {
			t.Fatalf("version %d: %v, %v, want the file", version, f, err)
		}
		f.Close()
		if f, err := s.OpenMemoryUse(); f != nil || err != nil {
			t.Errorf("version %d: a sandbox is shown the memory of others: %v, %v", version, f, err)
		}
	}
}

// putGroup writes a file of a group below dir.
func putGroup(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	for file, text := range map[string]string{path: text + "\n", filepath.Join(filepath.Dir(path), "cgroup.procs"): "", filepath.Join(dir, "cgroup.procs"): ""} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
}
