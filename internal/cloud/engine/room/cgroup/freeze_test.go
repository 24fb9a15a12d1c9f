//go:build linux

package cgroup

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// freezing returns a new group whose processes are moved to be frozen, and the groups
// of its instance.
func freezing(t *testing.T) (*Groups, *Group) {
	t.Helper()
	g := Create("e2bctl-test-"+rand.Text(), 1000, 2)
	t.Cleanup(func() {
		if err := Remove(t.Context(), g.Directories()); err != nil {
			t.Error(err)
		}
	})
	if how, why := g.FreezesWith(); how == "" || g.freezer.home == "" {
		t.Skipf("no processes are moved to be frozen here: %v", why)
	}
	s, err := g.Create("1", engine.Limits{}.WithDefaults())
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g, s
}

// sleeper starts a process in groups.
func sleeper(t *testing.T, groups ...string) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, group := range groups {
		must.Do(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	return cmd.Process.Pid
}

// TestFreezer checks that the processes of the group are frozen, later ones too, and
// that a foreign process in the freezing group is released.
func TestFreezer(t *testing.T) {
	t.Parallel()
	g, s := freezing(t)
	var own []string
	for _, h := range s.Dirs {
		own = append(own, h.Dir)
	}
	f := s.Freezer()
	if !slices.Contains(g.Directories(), filepath.Dir(f.dir)) {
		t.Errorf("the keeper removes %v, without %s", g.Directories(), f.dir)
	}
	want := []int{sleeper(t, own...)}
	for range 2 {
		must.Do(t, f.Freeze(t.Context()))
		must.Do(t, f.Thaw())
		want = append(want, sleeper(t, own...))
	}
	foreign := sleeper(t, f.dir)
	must.Do(t, f.Freeze(t.Context()))
	got, err := numbersIn(filepath.Join(f.dir, "cgroup.procs"))
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("frozen are %v, want %v, without %d: %v", got, want, foreign, err)
	}
	if err := s.Remove(); err != nil { // frozen processes can be killed
		t.Error(err)
	}
	if exists(f.dir) {
		t.Errorf("%s is left", f.dir)
	}
}

// TestSlowDown checks that slowDown leaves the sandbox a thousandth of a processor, and that
// restore brings back the earlier share.
func TestSlowDown(t *testing.T) {
	t.Parallel()
	_, s := freezing(t)
	f := s.Freezer()
	if f.cpu == "" {
		t.Skip("no group limits processors")
	}
	values := func() (text string) {
		for _, name := range []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"} {
			data, err := os.ReadFile(filepath.Join(f.cpu, name))
			must.Do(t, err)
			text += strings.TrimSpace(string(data)) + " "
		}
		return text
	}
	before := values()
	restore, err := f.slowDown()
	must.Do(t, err)
	if got := values(); got != "1000 1000000 " {
		t.Errorf("slowed down to %s", got)
	}
	restore()
	if got := values(); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
}

// slowedDown is a context that ends when the quota of a group has become as low as slowDown makes
// it.
type slowedDown struct {
	context.Context //nolint:containedctx // it is a context itself
	quota           string
}

func (c slowedDown) Err() error {
	if quota, err := os.ReadFile(c.quota); err == nil && string(quota) == "1000" {
		return context.Canceled
	}
	return nil
}

// TestGatherRestoresTheShare checks that a sandbox whose processes cannot all be moved in a few
// passes is slowed down, and that it gets its share of the processors back.
func TestGatherRestoresTheShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &Freezer{dir: dir, home: dir, members: filepath.Join(dir, "tasks"), cpu: dir}
	files := map[string]string{"cgroup.procs": "", "cgroup.threads": "", "tasks": "1", "cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n"}
	for name, text := range files {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must.Is(t, f.gather(slowedDown{context.Background(), filepath.Join(dir, "cpu.cfs_quota_us")}), context.Canceled)
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); strings.HasPrefix(name, "cpu.") && (err != nil || string(got) != want) {
			t.Errorf("%s: got %q, %v, want %q as before", name, got, err, want)
		}
	}
	if moved, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || string(moved) != strings.Repeat("1", quickPasses+1) {
		t.Errorf("got %q, %v, want the process to be moved in each pass", moved, err)
	}
}
