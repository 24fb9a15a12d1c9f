//go:build linux

package local_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv/gvisortest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestGVisorSetup checks that sandboxes keep the runsc of a cloud that runs for months from being
// removed by a later version, and that the error of a cloud with a damaged runsc names the remedy.
func TestGVisorSetup(t *testing.T) { // not parallel: it sets the directory of caches
	options := gvisorOptions(t)
	program := gvisortest.Need(t).Path
	python, err := exec.LookPath("python3")
	must.Do(t, err)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("E2BCTL_PYTHON", python)
	dir := filepath.Dir(program)
	copied := filepath.Join(cache, "e2bctl", "gvisor", filepath.Base(dir))
	runsc := filepath.Join(copied, filepath.Base(program))
	must.Do(t, errors.Join(os.Chmod(cache, 0o755), os.MkdirAll(filepath.Dir(copied), 0o700), os.CopyFS(copied, os.DirFS(dir))))
	cloud := sandboxtest.New(t, options...)
	output(t, cloud.Create(t), "user", "true") // the engine is open
	old := time.Now().Add(-40 * 24 * time.Hour)
	must.Do(t, os.Chtimes(runsc, old, old))
	cloud.Create(t)
	if info, err := os.Stat(runsc); err != nil || time.Since(info.ModTime()) > 24*time.Hour {
		t.Errorf("got %v, %v, want that the use of %s is noted", info, err, runsc)
	}

	must.Do(t, errors.Join(os.Remove(runsc), os.WriteFile(runsc, []byte("damaged"), 0o755)))
	const want = "run `e2bctl local setup --engine gvisor`"
	another, err := local.Start(t.Context(), options...)
	if err == nil {
		err = errors.Join(errors.New("it started"), another.Close())
	}
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), runsc) {
		t.Errorf("a cloud with a damaged runsc: got %v, want %q and %s", err, want, runsc)
	}
}
