//go:build linux

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCreateIn checks in which hierarchy the groups are made, whatever the order of the mounts, and the
// reasons where none is made.
func TestCreateIn(t *testing.T) {
	t.Parallel()
	first := groupOf(t, map[string]string{"tasks": ""})
	both := groupOf(t, map[string]string{"tasks": ""})
	second := groupOf(t, map[string]string{"cgroup.procs": "", "cgroup.subtree_control": "memory", "e2bctl/cgroup.subtree_control": "memory"})
	refused := groupOf(t, map[string]string{"e2bctl": "a file"})
	one := mount{first, first, 1, []string{"memory"}}
	shared := mount{both, both, 1, []string{"cpu", "pids"}}
	unified := mount{second, second, 2, nil}
	is := func(dir string, version int) Hierarchy { return Hierarchy{filepath.Join(dir, "e2bctl"), version} }
	no := errors.New("no mounts")
	for _, tt := range []struct {
		name   string
		mounts []mount
		err    error
		want   map[string]Hierarchy
		why    map[string]string // a part of it
	}{
		{"no mounts", nil, no, map[string]Hierarchy{}, map[string]string{"memory": "no mounts", "cpu": "no mounts", "pids": "no mounts"}},
		{"one", []mount{one}, nil, map[string]Hierarchy{"memory": is(first, 1)}, map[string]string{"cpu": "no control group controller", "pids": "no control group controller"}},
		{"two", []mount{one, shared}, nil, map[string]Hierarchy{"memory": is(first, 1), "cpu": is(both, 1), "pids": is(both, 1)}, nil},
		{"reversed", []mount{shared, one}, nil, map[string]Hierarchy{"memory": is(first, 1), "cpu": is(both, 1), "pids": is(both, 1)}, nil},
		{"version 1 goes first", []mount{unified, one, shared}, nil, map[string]Hierarchy{"memory": is(first, 1), "cpu": is(both, 1), "pids": is(both, 1)}, nil},
		{"of either version", []mount{unified, shared}, nil, map[string]Hierarchy{"memory": is(second, 2), "cpu": is(both, 1), "pids": is(both, 1)}, nil},
		{"mounted two times", []mount{unified, {refused, refused, 2, nil}, shared}, nil, map[string]Hierarchy{"memory": is(second, 2), "cpu": is(both, 1), "pids": is(both, 1)}, nil},
		{"version 2 may not", []mount{{refused, refused, 2, nil}, shared}, nil, map[string]Hierarchy{"cpu": is(both, 1), "pids": is(both, 1)}, map[string]string{"memory": "Delegate=yes"}},
		{"version 1 may not", []mount{{first + "/gone", first + "/gone", 1, []string{"memory"}}, shared}, nil, map[string]Hierarchy{"cpu": is(both, 1), "pids": is(both, 1)}, map[string]string{"memory": "no such file"}},
	} {
		g := createIn(tt.mounts, tt.err, "e2bctl", []string{"memory", "cpu", "pids"})
		if diff := cmp.Diff(tt.want, g.byController); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		for _, controller := range []string{"memory", "cpu", "pids"} {
			h, made := tt.want[controller]
			if made && !exists(h.Dir) || g.How(controller) != map[int]string{0: "", 1: "control group v1", 2: "control group v2"}[h.Version] {
				t.Errorf("%s: %s: got %q in %s", tt.name, controller, g.How(controller), h.Dir)
			}
			if why, part := g.Why[controller], tt.why[controller]; (why == "") != made || !strings.Contains(why, part) || part != "Delegate=yes" && strings.Contains(why, "Delegate=yes") {
				t.Errorf("%s: %s: got the reason %q, want %q", tt.name, controller, why, part)
			}
		}
		dirs := g.Directories()
		if slices.Sort(dirs); len(slices.Compact(dirs)) != len(g.Directories()) {
			t.Errorf("%s: got the directories %v, want each once", tt.name, dirs)
		}
	}
}

// TestCreateFails makes each call fail with which a group is made. Nothing of it is left.
func TestCreateFails(t *testing.T) {
	t.Parallel()
	for n, failed := 1, true; failed; n++ {
		first, second := t.TempDir(), t.TempDir()
		g := &Groups{byController: map[string]Hierarchy{"none": {first, 1}, "other": {second, 1}}}
		var err error
		failed, err = calltest.FailNth(t, unix.SYS_MKDIRAT, n, unix.EIO, func() error {
			_, err := g.Create("1", engine.Limits{})
			return err
		})
		if errors.Is(err, unix.EIO) != failed || failed != (n <= 2) {
			t.Errorf("group %d failed, %v: got %v", n, failed, err)
		}
		if failed && (exists(filepath.Join(first, "1")) || exists(filepath.Join(second, "1"))) {
			t.Errorf("group %d failed: a group is left", n)
		}
	}
	dir := t.TempDir()
	g := &Groups{byController: map[string]Hierarchy{"pids": {dir, 1}}} // without the files of the controller
	_, err := g.Create("1", engine.Limits{})
	must.Is(t, err, fs.ErrNotExist)
	if exists(filepath.Join(dir, "1")) {
		t.Error("a group is left whose limit could not be set")
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "1"), 0o700))
	_, err = g.Create("1", engine.Limits{})
	must.Is(t, err, fs.ErrExist)
	if !exists(filepath.Join(dir, "1")) {
		t.Error("the group of another sandbox was removed")
	}
}

// TestGroupsOfASandbox checks which of a sandbox's groups limits what.
func TestGroupsOfASandbox(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	g := &Groups{byController: map[string]Hierarchy{"freezer": {one, 1}, "devices": {one, 1}, "hugetlb": {two, 2}}}
	s, err := g.Create("1", engine.Limits{})
	must.Do(t, err)
	slices.SortFunc(s.Dirs, func(a, b Hierarchy) int { return a.Version - b.Version })
	if want := []Hierarchy{{one + "/1", 1}, {two + "/1", 2}}; !slices.Equal(s.Dirs, want) || s.Memory.Dir != "" || s.CPU.Dir != "" {
		t.Errorf("got %+v, want the groups %v, none of them for memory or processors", s, want)
	}
	must.Do(t, s.Remove())
	if exists(one+"/1") || exists(two+"/1") || !exists(one) {
		t.Error("groups are left, or those of the instance are gone")
	}
}

// TestLimitProcesses checks that the lowest of the limits above counts, a part of it.
func TestLimitProcesses(t *testing.T) {
	t.Parallel()
	dir := groupOf(t, map[string]string{"cgroup.procs": "", "pids.max": "900", "a/cgroup.procs": "", "a/pids.max": "1200", "a/b/pids.max": "max"})
	for _, tt := range []struct {
		most, part int64
		want       string
	}{{1000, 1, "900"}, {1000, 2, "450"}, {449, 2, "449"}, {450, 2, "450"}} {
		must.Do(t, Hierarchy{Dir: filepath.Join(dir, "a", "b"), Version: 1}.limitProcesses(tt.most, tt.part))
		if got, err := os.ReadFile(filepath.Join(dir, "a", "b", "pids.max")); err != nil || string(got) != tt.want {
			t.Errorf("%+v: got %q, %v", tt, got, err)
		}
	}
	must.Is(t, Hierarchy{Dir: filepath.Join(dir, "a", "gone")}.limitProcesses(1, 1), fs.ErrNotExist)
}

// TestMemoryGroup checks that kills are counted in the first group that counts them.
func TestMemoryGroup(t *testing.T) {
	t.Parallel()
	one, two := groupOf(t, map[string]string{"memory.oom_control": ""}), groupOf(t, map[string]string{"memory.events": ""})
	none := groupOf(t, map[string]string{"tasks": ""})
	for _, tt := range []struct {
		name   string
		mounts []mount
		want   Hierarchy
	}{
		{"version 1", []mount{{one, one, 1, []string{"cpu", "memory"}}}, Hierarchy{one, 1}},
		{"version 2", []mount{{two, two, 2, nil}}, Hierarchy{two, 2}},
		{"without a count", []mount{{none, none, 1, []string{"memory"}}, {none, none, 2, nil}, {two, two, 2, nil}}, Hierarchy{two, 2}},
		{"of another controller", []mount{{one, one, 1, []string{"cpu"}}}, Hierarchy{}},
		{"of the other version", []mount{{two, two, 1, []string{"memory"}}, {one, one, 2, nil}}, Hierarchy{}},
	} {
		if got := memoryGroup(tt.mounts); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestProcessorTime checks where the used time is read, and that a group that does not count it is no
// group that used none.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	one := groupOf(t, map[string]string{"cpuacct.usage": "3000000000\n"})
	two := groupOf(t, map[string]string{"cpu.stat": "nr_periods 0\nusage_usec 5000000\nuser_usec 1\n"})
	none := groupOf(t, map[string]string{"cpu.stat": "user_usec 1\n", "cpuacct.usage": "x"})
	bad := groupOf(t, map[string]string{"cpu.stat": "usage_usec x\n"})
	for name, tt := range map[string]struct {
		group *Group
		want  time.Duration
		known bool
	}{
		"no group":               {nil, 0, false},
		"no controller":          {&Group{}, 0, false},
		"version 1":              {&Group{CPU: Hierarchy{one, 1}, Dirs: []Hierarchy{{two, 2}}}, 3 * time.Second, true},
		"version 1, not counted": {&Group{CPU: Hierarchy{none, 1}, Dirs: []Hierarchy{{two, 2}}}, 0, false},
		"version 2":              {&Group{CPU: Hierarchy{two, 2}, Dirs: []Hierarchy{{two, 2}}}, 5 * time.Second, true},
		"version 2 for others":   {&Group{Dirs: []Hierarchy{{one, 1}, {none, 2}, {one, 2}, {two, 2}}}, 5 * time.Second, true},
		"of version 1 only":      {&Group{Dirs: []Hierarchy{{two, 1}}}, 0, false},
		"no number":              {&Group{Dirs: []Hierarchy{{bad, 2}}}, 0, false},
	} {
		if got, known := tt.group.ProcessorTime(); got != tt.want || known != tt.known {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, known, tt.want, tt.known)
		}
	}
}

// TestNoGroup checks that a sandbox without groups has no counts and no processes that are known.
func TestNoGroup(t *testing.T) {
	t.Parallel()
	var none *Group
	for _, s := range []*Group{none, {}} {
		pids, known, err := s.Processes()
		if pids != nil || known || err != nil {
			t.Errorf("%v: got processes %v, %v, %v", s, pids, known, err)
		}
		if s.Freezer() != nil || s.OOMKills() != 0 {
			t.Errorf("%v: got freezer %v, %d kills", s, s.Freezer(), s.OOMKills())
		}
		for _, open := range []func() (*os.File, error){s.OpenOOMKills, s.OpenMemoryUse} {
			if f, err := open(); f != nil || err != nil {
				t.Errorf("%v: got %v, %v, want no file", s, f, err)
			}
		}
	}
	dir := groupOf(t, map[string]string{"cgroup.procs": "0\n7\n9\nx\n-3\n9\n", "memory.stat": "anon 1\n", "memory.events": "oom_kill 1\n"})
	s := &Group{Dirs: []Hierarchy{{dir, 1}}, Memory: Hierarchy{dir, 2}, kills: Hierarchy{dir, 2}}
	if pids, known, err := s.Processes(); !slices.Equal(pids, []int{7, 9, 9}) || !known || err != nil {
		t.Errorf("got %v, %v, %v, want the processes that are visible here", pids, known, err)
	}
	if s.OOMKills() != 1 {
		t.Errorf("got %d kills, want one", s.OOMKills())
	}
	f, err := s.OpenMemoryUse()
	must.Do(t, err)
	if m, known := ReadMemory(f); !known || m.Anonymous != 1 {
		t.Errorf("got %+v, %v", m, known)
	}
	must.Do(t, f.Close())
	if m, known := ReadMemory(f); known || m != (Memory{}) || CountOOMKills(f) != 0 {
		t.Errorf("a closed file: got %+v, %v, %d", m, known, CountOOMKills(f))
	}
	s.Dirs[0].Dir = filepath.Join(dir, "gone")
	if _, known, err := s.Processes(); !known || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group that is gone: got %v, %v, want its error", known, err)
	}
	s.kills.Dir = s.Dirs[0].Dir
	if s.OOMKills() != 0 {
		t.Errorf("a group that is gone: got %d kills", s.OOMKills())
	}
}
