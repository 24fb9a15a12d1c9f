//go:build linux

package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestPool checks a pool of real sandboxes, which another program kills while they
// wait, on a service that refuses creations at first and has a limit of its own.
func TestPool(t *testing.T) {
	t.Parallel()
	const warm, most, users, uses = 3, 5, 6, 4
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithMaxSandboxes(most))
	client, err := sandbox.NewClient(cloud.Option(), sandbox.WithMaxRetries(0))
	must.Do(t, err)
	defer client.Close()
	cloud.Inject(t, local.Fault{Operation: local.OpCreateSandbox, Status: http.StatusServiceUnavailable, Message: "busy", Times: 2})
	pool, err := client.NewPool(&sandbox.PoolParams{
		Warm: warm,
		Prepare: func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.Files.WriteText(ctx, "prepared", "yes", nil)
		},
	})
	must.Do(t, err)
	full := func() bool { return pool.Stats().Warm == warm }
	use := func() {
		sb, err := pool.Get(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if got, err := sb.Files.ReadText(t.Context(), "prepared", nil); err != nil || got != "yes" {
			t.Errorf("%s: got %q, %v, want it prepared", sb.ID(), got, err)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}

	patience.Until(t, "the pool is full", full)
	for info, err := range client.List(t.Context(), nil) {
		must.Do(t, err)
		must.Do(t, client.Kill(t.Context(), info.ID))
	}
	use()
	if got := pool.Stats(); got.Discarded != warm || got.Failed == 0 {
		t.Errorf("got %+v, want %d discarded and some failed", got, warm)
	}

	var using sync.WaitGroup
	for range users {
		using.Go(func() {
			for range uses {
				use()
			}
		})
	}
	using.Wait()
	patience.Until(t, "the pool is full again", full)
	if got := pool.Stats(); got.Taken != users*uses+1 || got.InUse != 0 {
		t.Errorf("got %+v, want %d taken and none in use", got, users*uses+1)
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
	for info, err := range client.List(t.Context(), nil) {
		t.Errorf("after Close: got %v, %v, want no sandbox", info, err)
	}
}
