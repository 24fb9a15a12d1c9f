//go:build linux

package docker_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/must"
)

// limitsInside prints the limits inside: those of the control groups of either version, and of the
// kernel.
const limitsInside = `
cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
cat /sys/fs/cgroup/cpu.max 2>/dev/null || echo $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us) $(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)
cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null
grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\t' | sed 's/:/ /'
id -u
`

// TestLimits reads back from inside the options that Docker's libraries call mem_limit, cpu_quota,
// pids_limit, cap_drop, security_opt and user.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		options docker.Options
		limits  engine.Limits
		want    []string
	}{
		{"the documentation's", docker.Options{
			MemoryBytes: 512 << 20, CPUs: 0.5, MaxProcesses: 100, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, User: "nobody",
		}, engine.Limits{}, []string{"536870912", "50000 100000", "100", "CapEff 0000000000000000", "CapBnd 0000000000000000", "NoNewPrivs 1", "65534"}},
		{"of the sandbox", docker.Options{}, engine.Limits{MemoryBytes: 300 << 20, CPUs: 0.25, MaxProcesses: 77}, []string{"314572800", "25000 100000", "77", "NoNewPrivs 1", "0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, open(t, tt.options), engine.SandboxOptions{ID: "limits", Limits: tt.limits})
			got := strings.Split(run(t, s, limitsInside), "\n")
			for _, want := range tt.want {
				found := false
				for _, line := range got {
					found = found || line == want
				}
				if !found {
					t.Errorf("inside is %q, want a line %q", got, want)
				}
			}
		})
	}
}

// TestLimitsHold checks that the limits stop processes that go beyond them, and that the sandbox
// outlives that.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{MemoryBytes: 128 << 20, MaxProcesses: 40}), engine.SandboxOptions{})
	if out, err := try(t, s, "user", `python3 -c 'x = bytearray(400 << 20); print("too much")'`); err == nil || strings.Contains(out, "too much") {
		t.Errorf("400 MiB of 128: got %q, %v", out, err)
	}
	if out, _ := try(t, s, "user", `for i in $(seq 60); do sleep 5 & done; wait; echo all`); strings.Contains(out, "all") && !strings.Contains(out, "fork") {
		t.Errorf("60 processes of 40: got %q", out)
	}
	if got := run(t, s, "echo alive"); got != "alive" {
		t.Errorf("afterwards it says %q", got)
	}
}

// TestResize reads back new limits of a running container from inside, and checks that a refused resize
// changes none.
func TestResize(t *testing.T) {
	t.Parallel()
	const disk = 100 << 20
	s := start(t, open(t, docker.Options{MemoryBytes: 256 << 20, CPUs: 0.5}), engine.SandboxOptions{Limits: engine.Limits{DiskBytes: disk}})
	resize := func(l engine.Limits) error {
		t.Helper()
		must.Do(t, s.Hold(t.Context()))
		err := s.Resize(t.Context(), l)
		must.Do(t, s.Thaw(t.Context()))
		return err
	}
	check := func(what string, memory, quota string) {
		t.Helper()
		got := strings.Split(run(t, s, limitsInside), "\n")
		for _, want := range []string{memory, quota} {
			if !slices.Contains(got, want) {
				t.Errorf("%s: inside is %q, want a line %q", what, got, want)
			}
		}
	}
	must.Do(t, resize(engine.Limits{MemoryBytes: 512 << 20, CPUs: 0.75, DiskBytes: disk}))
	check("more", "536870912", "75000 100000")
	if _, err := try(t, s, "user", `python3 -c 'import time; x = b"x" * (100 << 20); print(flush=True); time.sleep(1000)' >ready & until test -s ready; do sleep 0.1; done`); err != nil {
		t.Fatal(err)
	}
	used, ok := errors.AsType[*engine.InUseError](resize(engine.Limits{MemoryBytes: 64 << 20, CPUs: 0.25, DiskBytes: disk}))
	if !ok || used.Resource != "memory" || used.Used < 100<<20 {
		t.Errorf("memory below its use: got %+v", used)
	}
	if err := resize(engine.Limits{MemoryBytes: 300 << 20, CPUs: 0.25, DiskBytes: 2 * disk}); !errors.Is(err, &engine.LackError{Feature: engine.DiskLimit}) {
		t.Errorf("the disk: got %v, want a lack of %s", err, engine.DiskLimit)
	}
	check("after refused ones", "536870912", "75000 100000")
	must.Do(t, resize(engine.Limits{MemoryBytes: 300 << 20, CPUs: 0.25, DiskBytes: disk}))
	check("less", "314572800", "25000 100000")
}

// TestNobody checks that a sandbox works whose user may write next to nothing.
func TestNobody(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{User: "nobody", CapDrop: []string{"ALL"}}), engine.SandboxOptions{})
	for _, user := range []string{"user", "root", "nobody"} {
		got, err := try(t, s, user, `echo here > file && cat file && id -u && test "$PWD" = "$HOME"`)
		if err != nil || got != "here\n65534" {
			t.Errorf("%s: got %q, %v", user, got, err)
		}
	}
	if _, err := try(t, s, "user", "touch /etc/x"); err == nil {
		t.Error("nobody wrote to /etc")
	}
}

// TestRefused checks that options that a container cannot have are refused by name.
func TestRefused(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{})
	for _, tt := range []struct {
		options engine.SandboxOptions
		want    error
	}{
		{engine.SandboxOptions{Layers: []string{"/x"}}, &engine.LackError{Feature: engine.SharedLayers}},
		{engine.SandboxOptions{Files: filepath.Join(t.TempDir(), "none")}, fs.ErrNotExist},
		{engine.SandboxOptions{Volumes: []engine.Volume{{}}}, &engine.LackError{Feature: engine.Volumes}},
		{engine.SandboxOptions{Authority: []byte("x")}, &engine.LackError{Feature: engine.HeaderRules}},
	} {
		if _, err := e.NewSandbox(t.Context(), options(t, tt.options)); !errors.Is(err, tt.want) {
			t.Errorf("got %v, want %v", err, tt.want)
		}
	}
}

// TestTooSmall checks that the limit is named that a container cannot start within.
func TestTooSmall(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{})
	for want, limits := range map[string]engine.Limits{
		"1 bytes of memory": {MemoryBytes: 1}, "1 processes": {MaxProcesses: 1}, "0.001 CPUs": {CPUs: 0.001}, "1 bytes of disk": {DiskBytes: 1},
		"16 processes": {MaxProcesses: 16}, // the runtime of the first process needs more
	} {
		if _, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{Limits: limits})); !errors.Is(err, engine.ErrLimits) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %v and %q", err, engine.ErrLimits, want)
		}
	}
}
