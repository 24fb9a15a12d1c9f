//go:build linux

package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestIdle checks that a sandbox ends when nothing uses it although its handle is open, and that code and
// commands that are silent for longer than the idle limit keep it.
func TestIdle(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	over := func(t *testing.T, sb *sandbox.Sandbox) {
		t.Helper()
		patience.Until(t, "the end of a sandbox that nothing uses", func() bool {
			_, err := sb.Info(t.Context())
			gone, ok := errors.AsType[*sandbox.GoneError](err)
			if ok && gone.State != sandbox.GoneIdle {
				t.Fatalf("got %v, want that nothing used it", err)
			}
			return ok
		})
	}
	limit := func(d time.Duration) sandbox.CreateOption { return sandbox.WithExpiry(sandbox.Expiry{Idle: d}) }
	t.Run("a handle after code", func(t *testing.T) {
		t.Parallel()
		sb := cloud.Create(t, limit(2*time.Second))
		sandboxtest.Eval(t, sb, "1")
		info, err := sb.Info(t.Context())
		must.Do(t, err)
		if info.Idle != 2*time.Second || info.EndAt.Sub(info.StartedAt) < time.Hour {
			t.Errorf("got limit %v and end %v, want 2s and the longest lifetime", info.Idle, info.EndAt)
		}
		over(t, sb) // asking does not keep it
	})
	for name, use := range map[string]func(*testing.T, *sandbox.Sandbox) error{
		"silent code over a websocket": func(t *testing.T, sb *sandbox.Sandbox) error {
			_, err := sb.RunCode(t.Context(), "import time; time.sleep(3)", nil)
			return err
		},
		"a silent command": func(t *testing.T, sb *sandbox.Sandbox) error {
			_, err := sb.Commands.Run(t.Context(), "sleep 3", nil)
			return err
		},
		"a silent terminal": func(t *testing.T, sb *sandbox.Sandbox) error {
			_, err := sb.PTY.Open(t.Context(), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := cloud.Create(t, limit(time.Second))
			must.Do(t, use(t, sb))
			over(t, sb)
		})
	}
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		sb := cloud.Create(t, sandbox.WithExpiry(sandbox.Expiry{Idle: time.Second, Then: sandbox.ThenPause}))
		paused := func() bool {
			info, err := sb.Info(t.Context())
			return err == nil && info.State == api.StatePaused
		}
		patience.Until(t, "the pause of a sandbox that nothing uses", paused)
		must.Do(t, sb.Resume(t.Context(), nil))
		patience.Until(t, "its second pause", paused)
	})
}
