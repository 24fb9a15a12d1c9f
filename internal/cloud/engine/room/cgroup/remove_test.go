//go:build linux

package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/chaintest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestRemoveGroup checks that removing a group ends its processes, without any
// other help.
func TestRemoveGroup(t *testing.T) {
	t.Parallel()
	mounts, err := mounts()
	must.Do(t, err)
	tried := 0
	for _, m := range mounts {
		if m.version == 1 && !slices.Contains(m.controllers, "pids") {
			continue
		}
		dir := filepath.Join(m.own, "e2bctl-test-"+strings.ToLower(filepath.Base(t.TempDir()))+fmt.Sprint(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Logf("%s: %v", dir, err)
			continue
		}
		tried++
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec python3 -c "$1"`, dir, chaintest.Script)
		cmd.Dir = home
		if out, err := cmd.Output(); err != nil || string(out) != "locked\n" {
			t.Errorf("%q, %v", out, err)
		}
		if err := Remove(context.Background(), []string{dir}); err != nil {
			t.Errorf("version %d: %v", m.version, err)
		}
		lock, err := os.Open(filepath.Join(home, "lock"))
		must.Do(t, err)
		defer lock.Close()
		if !chaintest.IsFree(lock) {
			t.Errorf("version %d: the chain goes on", m.version)
		}
	}
	if tried == 0 {
		t.Skip("this user may not make control groups")
	}
}
