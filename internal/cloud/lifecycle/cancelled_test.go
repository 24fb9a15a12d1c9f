package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// TestAfterCancelledSnapshot checks that a call waits for the end of a snapshot or fork whose
// caller has gone.
func TestAfterCancelledSnapshot(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"snapshot", "fork"} {
		for _, next := range []string{"snapshot", "fork", "pause"} {
			t.Run(next+" after "+first, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t)
					id := s.create(t)
					hook, ends := s.fakes.Hook, make(chan struct{})
					s.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
						if op == lifecycletest.Checkpoint && ctx.Err() == nil {
							<-ends // it ignores that its caller has gone
						}
						return hook(ctx, id, op)
					}
					ctx, leave := context.WithCancel(t.Context())
					left, got := make(chan string, 1), make(chan string, 1)
					go func() { left <- calls[first](ctx, s, id) }()
					synctest.Wait()
					leave()
					go func() { got <- calls[next](t.Context(), s, id) }()
					synctest.Wait()
					close(ends)
					if got := <-left; got != context.Canceled.Error() {
						t.Errorf("%s: got %s, want that it was cancelled", first, got)
					}
					if got := <-got; got != "201" && got != "204" {
						t.Errorf("%s: got %s, want it done", next, got)
					}
					_ = s.Close()
				})
			})
		}
	}
}
