//go:build linux

package local_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// WaitPort returns when a server listens, and says so when none does in time.
func TestWaitPort(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	patience.Doubling(t, "the port is found closed", 200*time.Millisecond, func(d time.Duration) bool {
		closed, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		err := sb.WaitPort(closed, 8000)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a server: got %v, want the deadline", err)
		}
		if errors.Is(err, sandbox.ErrPortClosed) && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "nothing listens on port 8000")) {
			t.Errorf("without a server: %q, want one line that says so", err)
		}
		return err == nil || errors.Is(err, sandbox.ErrPortClosed)
	})
	const late = "sleep 0.3; exec python3 -m http.server 8000"
	if _, err := sb.Commands.Start(t.Context(), late, nil); err != nil {
		t.Fatal(err)
	}
	if err := sb.WaitPort(t.Context(), 8000); err != nil {
		t.Fatalf("with a server that starts late: %v", err)
	}
	must.Do(t, sb.Kill(t.Context()))
	if err := sb.WaitPort(t.Context(), 8000); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("of a sandbox that was killed: %v, want ErrGone", err)
	}
}
