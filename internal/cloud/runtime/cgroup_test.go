//go:build linux

package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCgroupMounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, mountinfo, own string
		want                 []cgroupMount
	}{
		{
			"v2 under systemd",
			"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/user.slice/user-1000.slice/session-3.scope\n",
			[]cgroupMount{{point: "/sys/fs/cgroup", own: "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", version: 2}},
		},
		{
			"hybrid",
			"31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
				"32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
				"33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"5:memory:/a\n4:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/d\n",
			[]cgroupMount{
				{point: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory/a", version: 1, controllers: []string{"memory"}},
				{point: "/sys/fs/cgroup/cpu,cpuacct", own: "/sys/fs/cgroup/cpu,cpuacct/b", version: 1, controllers: []string{"cpu", "cpuacct"}},
				{point: "/sys/fs/cgroup/unified", own: "/sys/fs/cgroup/unified/d", version: 2},
			},
		},
		{
			"a container that sees its own part",
			"31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"5:memory:/docker/abc\n",
			[]cgroupMount{{point: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory", version: 1, controllers: []string{"memory"}}},
		},
		{
			"a group that the mount does not show",
			"31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"5:memory:/elsewhere\n",
			[]cgroupMount{{point: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory", version: 1, controllers: []string{"memory"}}},
		},
		{"nonsense", "x\n1 2 3 4 5 - \n - cgroup2\n", "::\nx\n", nil},
	}
	for _, tt := range tests {
		got := parseCgroupMounts([]byte(tt.mountinfo), []byte(tt.own))
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(cgroupMount{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestParseIDMap(t *testing.T) {
	t.Parallel()
	got := parseIDMap([]byte("         0          0 4294967295\n bad line\n 1000 65536 1"))
	want := []idRange{{0, 0, 4294967295}, {1000, 65536, 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(idRange{})); diff != "" {
		t.Error(diff)
	}
}
