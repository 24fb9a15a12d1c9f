package api

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSavingWaits checks that a call that saves a sandbox waits until the deadline of its context,
// and not for ever without a deadline.
func TestSavingWaits(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(context.Context, *Client) error{
		"pause":    func(ctx context.Context, c *Client) error { return c.Sandboxes.Pause(ctx, "i1", nil) },
		"fork":     func(ctx context.Context, c *Client) error { _, err := c.Sandboxes.Fork(ctx, "i1", nil); return err },
		"snapshot": func(ctx context.Context, c *Client) error { _, err := c.Snapshots.Create(ctx, "i1", nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				})))
				must.Do(t, err)
				for _, limit := range []time.Duration{time.Minute, 2 * time.Hour} {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					start := time.Now()
					if err := save(ctx, c); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != limit {
						t.Errorf("got %v after %v, want the deadline after %v", err, time.Since(start), limit)
					}
					cancel()
				}
				start := time.Now()
				if err := save(t.Context(), c); !errors.Is(err, ErrTimeout) || time.Since(start) != 15*time.Minute {
					t.Errorf("without a deadline: got %v after %v, want ErrTimeout after 15 minutes", err, time.Since(start))
				}
			})
		})
	}
}
