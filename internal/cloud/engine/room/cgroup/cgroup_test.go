//go:build linux

package cgroup

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestParseCgroupMounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, mountinfo, own string
		want                 []mount
	}{
		{
			"v2 under systemd",
			"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/user.slice/user-1000.slice/session-3.scope\n",
			[]mount{{point: "/sys/fs/cgroup", own: "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", version: 2}},
		},
		{
			"hybrid",
			"31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
				"32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
				"33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"5:memory:/a\n4:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/d\n",
			[]mount{
				{point: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory/a", version: 1, controllers: []string{"memory"}},
				{point: "/sys/fs/cgroup/cpu,cpuacct", own: "/sys/fs/cgroup/cpu,cpuacct/b", version: 1, controllers: []string{"cpu", "cpuacct"}},
				{point: "/sys/fs/cgroup/unified", own: "/sys/fs/cgroup/unified/d", version: 2},
			},
		},
		{
			"a container that sees its own part",
			"31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"5:memory:/docker/abc\n",
			[]mount{{point: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory", version: 1, controllers: []string{"memory"}}},
		},
		{
			"a group that the mount does not show",
			"31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"5:memory:/elsewhere\n",
			[]mount{{point: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory", version: 1, controllers: []string{"memory"}}},
		},
		{
			"what is no hierarchy, or one without this process",
			"29 23 0:25 / /sys rw - sysfs sysfs rw\n" +
				"31 23 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
				"32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
				"33 23 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw\n" +
				"34 23 0:30 / /short - cgroup2\n" +
				"35 23 0:31 /\n",
			"4:cpu,cpuacct:/b\n3:pids:/c\n0::/d\n2:memory\n",
			nil,
		},
		{"nonsense", "x\n1 2 3 4 5 - \n - cgroup2\n", "::\nx\n", nil},
	}
	for _, tt := range tests {
		got := parseMounts([]byte(tt.mountinfo), []byte(tt.own))
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(mount{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// unifiedMount returns a group of the version 2 hierarchy that contains a process,
// like an ordinary one, below groups without processes, and a controller to pass
// on.
func unifiedMount(t *testing.T) (m mount, controller string) {
	t.Helper()
	mounts, err := mounts()
	must.Do(t, err)
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.version == 2 })
	if i < 0 || os.Geteuid() != 0 {
		t.Skip("no version 2 hierarchy that this user may change")
	}
	m = mounts[i]
	text, err := os.ReadFile(filepath.Join(m.point, "cgroup.controllers"))
	names := strings.Fields(string(text))
	if err != nil || len(names) == 0 {
		t.Skipf("no controller in the version 2 hierarchy: %v", err)
	}
	controller = names[len(names)-1]
	dir := m.point
	for _, name := range []string{"e2bctl-test-" + rand.Text(), "slice", "scope"} {
		subtree := filepath.Join(dir, "cgroup.subtree_control")
		if have, err := os.ReadFile(subtree); err == nil && !slices.Contains(strings.Fields(string(have)), controller) {
			if err := os.WriteFile(subtree, []byte("+"+controller), 0); err != nil {
				t.Skipf("hand down %s: %v", controller, err)
			}
			if dir == m.point {
				t.Cleanup(func() {
					if err := os.WriteFile(subtree, []byte("-"+controller), 0); err != nil {
						t.Error(err)
					}
				})
			}
		}
		below := filepath.Join(dir, name)
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Skip(err)
		}
		dir = below
		t.Cleanup(func() {
			if err := removeOne(context.Background(), below); err != nil {
				t.Error(err)
			}
		})
	}
	m.own = dir
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the end of the test's context killed it
	must.Do(t, (&Group{Dirs: []Hierarchy{{Dir: dir, Version: 2}}}).Add(cmd.Process.Pid))
	return m, controller
}

// TestUnified checks that the group is made beside that of the process, not below
// it, and that a controller that cannot be passed on there leaves no second group
// behind.
func TestUnified(t *testing.T) {
	t.Parallel()
	m, controller := unifiedMount(t)
	g := createIn([]mount{m, m}, nil, "instance", []string{"nonsense", controller})
	want := filepath.Join(filepath.Dir(m.own), "instance")
	if h := g.byController[controller]; h.Dir != want || h.Version != 2 || len(g.byController) != 1 {
		t.Errorf("%+v, want %s", g, want)
	}
	if !strings.Contains(g.Why["nonsense"], "Delegate=yes") || g.Why[controller] != "" {
		t.Errorf("why: %v", g.Why)
	}
	if exists(filepath.Join(m.own, "instance")) || exists(filepath.Join(filepath.Dir(filepath.Dir(m.own)), "instance")) {
		t.Error("groups are left elsewhere")
	}
	s, err := g.Create("1", engine.Limits{})
	must.Do(t, err)
	text, err := os.ReadFile(filepath.Join(want, "1", "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(text)), controller) {
		t.Errorf("the sandbox's group has %q, %v", text, err)
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	for _, open := range []func() (*os.File, error){s.OpenOOMKills, s.OpenMemoryUse} {
		if f, err := open(); f != nil || err != nil {
			t.Errorf("a count without a memory group: %v, %v", f, err)
		}
	}
	none := createIn([]mount{m}, nil, "instance", []string{"nonsense"})
	if len(none.byController) != 0 || none.Why["nonsense"] == "" || len(none.Directories()) != 0 {
		t.Errorf("%+v", none)
	}
}

// exists reports whether there is a file at path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestSettings checks the values and files of the settings, by the version of the
// hierarchy.
func TestSettings(t *testing.T) {
	t.Parallel()
	limits := engine.Limits{MemoryBytes: 1 << 30, CPUs: 1.5, MaxProcesses: 100}
	tests := map[string][]setting{
		"memory 1": {{"memory.limit_in_bytes", "1073741824", false}, {"memory.memsw.limit_in_bytes", "1073741824", true}},
		"memory 2": {{"memory.max", "1073741824", false}, {"memory.swap.max", "0", true}},
		"cpu 1":    {{"cpu.cfs_period_us", "100000", false}, {"cpu.cfs_quota_us", "150000", false}},
		"cpu 2":    {{"cpu.max", "150000 100000", false}},
		"pids 1":   {{"pids.max", "100", false}},
		"pids 2":   {{"pids.max", "100", false}},
	}
	for name, want := range tests {
		controller, version, _ := strings.Cut(name, " ")
		if diff := cmp.Diff(want, settings(controller, int(version[0]-'0'), limits), cmp.AllowUnexported(setting{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCountOOMKills(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":                3,
		"low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 9\n": 2,
		"oom_kill x\n": 0, "": 0,
	} {
		f := fileOf(t, text)
		for range 2 { // it is read again and again
			if got := CountOOMKills(f); got != want {
				t.Errorf("%q: %d", text, got)
			}
		}
	}
}

func TestReadMemory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Memory{
		"cache 1\nrss 2\nshmem 3\ntotal_cache 100\ntotal_rss 20\ntotal_shmem 30\n": {20, 30, 70},
		"anon 20\nfile 100\nkernel 7\nshmem 30\nfile_mapped 9\n":                   {20, 30, 70},
		"anon 20\nfile 1\nshmem 30\n":                                              {20, 30, 0},
		"anon_thp 20\nsome 100\n\nno value\n":                                      {},
		"":                                                                         {},
	} {
		f := fileOf(t, text)
		for range 2 {
			if got, known := ReadMemory(f); got != want || known != (want != Memory{}) {
				t.Errorf("%q: got %+v, %v, want %+v", text, got, known, want)
			}
		}
	}
}

// fileOf returns an open file with that text.
func fileOf(t *testing.T, text string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	f, err := os.Open(name)
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
