//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestKilledWhileCopying kills the server at any moment of a snapshot and of a fork of a
// sandbox that has written much. Nothing of the server is left then: no process, control
// group, mount or directory. After the next start a snapshot is complete or missing, and
// not missing if it was acknowledged. No layer is left to which nothing refers.
func TestKilledWhileCopying(t *testing.T) {
	t.Parallel()
	rounds := 2
	if os.Getenv("SOAK") != "" {
		rounds = 50
	}
	for name, call := range map[string]struct{ path, body string }{
		"snapshot": {"/snapshots", `{"name":"kept"}`}, "fork": {"/fork", `{"count":3}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				killedWhileCopying(t, call.path, call.body)
			}
		})
	}
}

func killedWhileCopying(t *testing.T, path, body string) {
	t.Helper()
	state, cache := filepath.Join(t.TempDir(), "state"), t.TempDir()
	before := startServer(t, stateVariable+"="+state, "XDG_CACHE_HOME="+cache)
	sb, err := sandbox.Create(t.Context(), before.option())
	must.Do(t, err)
	sandboxtest.Run(t, sb, "head -c 20000000 /dev/urandom > big; for i in $(seq 300); do echo $i > small-$i; done; sha256sum big > sum")
	family := descendants(t, before.pid())
	groups := cgroups(family)
	answered := make(chan bool, 1)
	go func() {
		status, _, err := before.try(t, "POST", "/sandboxes/"+sb.ID()+path, body)
		answered <- err == nil && status == http.StatusCreated
	}()
	select { // at an unknown moment, on purpose
	case <-time.After(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))):
	case <-t.Context().Done():
	}
	born := descendants(t, before.pid())
	family, groups = append(family, born...), append(groups, cgroups(born)...)
	before.kill(t)
	acknowledged := <-answered
	_ = sb.Close() // its server is gone
	wantNothingOf(t, family, groups, cache, state)

	after := startServer(t, stateVariable+"="+state, "XDG_CACHE_HOME="+cache)
	client, err := sandbox.NewClient(after.option())
	must.Do(t, err)
	defer client.Close()
	found := 0
	for snapshot, err := range client.Snapshots.List(t.Context(), nil) {
		must.Do(t, err)
		found++
		made, err := client.Create(t.Context(), sandbox.WithTemplate(snapshot.ID))
		must.Do(t, err)
		if got, want := sandboxtest.Run(t, made, "sha256sum -c sum; ls small-* | wc -l"), "big: OK\n300"; got != want {
			t.Errorf("acknowledged: %v; from the snapshot: got %q, want %q", acknowledged, got, want)
		}
		if err := errors.Join(made.Close(), client.Snapshots.Delete(t.Context(), snapshot.ID)); err != nil {
			t.Error(err)
		}
	}
	if path == "/snapshots" && acknowledged && found != 1 {
		t.Errorf("got %d snapshots, want the one that was acknowledged", found)
	}
	patience.Until(t, "what is not needed is removed", func() bool { // the end of the server would leave the rest to the next start
		left, err := filepath.Glob(filepath.Join(state, "trash", "*"))
		return err == nil && len(left) == 0
	})
	after.stop(t)
	for _, dir := range []string{"files", "new", "trash"} {
		if left, err := filepath.Glob(filepath.Join(state, dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("got %v and error %v, want nothing in %s", left, err, dir)
		}
	}
}

// wantNothingOf waits for the end of a killed server's processes, control groups,
// instance directory and mounts.
func wantNothingOf(t *testing.T, family []started, groups []string, dirs ...string) {
	t.Helper()
	patience.Until(t, "its processes have ended", func() bool { return len(living(family)) == 0 })
	patience.Until(t, "its directory is gone", func() bool {
		left, err := filepath.Glob(filepath.Join(dirs[0], "e2bctl", "run", "cloud-*"))
		return err == nil && len(left) == 0
	})
	patience.Until(t, "its cgroups are gone", func() bool {
		for _, group := range groups {
			if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	for _, dir := range dirs {
		if err != nil || bytes.Contains(mounts, []byte(dir)) {
			t.Errorf("got mounts %s and error %v, want none of %s", mounts, err, dir)
		}
	}
}
