//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The limits of all groups above count, also above a group without a limit and one that
// lacks the files of the controller. Directories above the mount do not count.
func TestProcessLimits(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	point := filepath.Join(above, "mount")
	own := filepath.Join(point, "slice", "scope", "leaf")
	must.Do(t, os.MkdirAll(own, 0o755))
	for name, text := range map[string]string{
		"pids.max":                            "1\n",
		"mount/cgroup.procs":                  "",
		"mount/pids.max":                      "512\n",
		"mount/pids.current":                  "100\n",
		"mount/slice/cgroup.procs":            "",
		"mount/slice/pids.max":                "max\n",
		"mount/slice/scope/cgroup.procs":      "",
		"mount/slice/scope/leaf/cgroup.procs": "",
		"mount/slice/scope/leaf/pids.max":     "800\n",
		"mount/slice/scope/leaf/pids.current": "7\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(above, name), []byte(text), 0o600))
	}
	want := []ProcessLimit{{Dir: own, Max: 800, Used: 7}, {Dir: point, Max: 512, Used: 100}}
	if diff := cmp.Diff(want, processLimits(own)); diff != "" {
		t.Error(diff)
	}
}
