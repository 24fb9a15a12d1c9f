//go:build linux

package cmdutil

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOwnCloud checks that a cloud of the command answers its client, and that it ends with the connection.
func TestOwnCloud(t *testing.T) {
	fresh(t)
	f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
	limits := &ResourceFlags{ofSandbox: true}
	cmd := parsed(t, limits.Add, "--memory=64m", "--pids=20")
	open, err := f.Opener(cmd, true, LocalEphemeral, limits)
	must.Do(t, err)
	conn, err := open(t.Context())
	must.Do(t, err)
	instances := func() []string {
		found, err := filepath.Glob(filepath.Join(os.Getenv("HOME"), "e2bctl", "run", "cloud-*"))
		must.Do(t, err)
		return found
	}
	_, err = conn.API().Teams.List(t.Context())
	if before := instances(); err != nil || len(before) != 1 || !strings.HasPrefix(conn.API().BaseURL(), "http") || f.UsesRunningLocalCloud() {
		t.Errorf("got error %v and the clouds %v at %s, want one", err, before, conn.API().BaseURL())
	}
	must.Do(t, conn.Close())
	if after := instances(); len(after) > 0 {
		t.Errorf("the clouds %v stay", after)
	}
}
