package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestPauseIsNotRetriedAtOnce checks the time at which an automatic pause that failed is tried again. It runs
// before the tests in which the registry would try again at once, and forever, or would not close.
func TestPauseIsNotRetriedAtOnce(t *testing.T) { //nolint:paralleltest // see above
	r := New(Options{Store: store.Temporary(t.TempDir())})
	broken := errors.New("broken")
	for _, p := range []pause{{}, {unasked: true}, {unasked: true, idle: true}} {
		rec := &record{}
		r.mu.Lock()
		state := r.runOnLocked(rec, p, broken)
		left := rec.until - r.clock.since()
		r.mu.Unlock()
		retried := p.unasked && !p.idle
		if state != Running || (rec.retryUntil > 0) != retried || errors.Is(rec.unpaused, broken) != retried || (left > retryAfter-time.Minute/2) != retried {
			t.Fatalf("%+v: it is %v, and tried again after %v until %v", p, state, left, rec.retryUntil)
		}
	}
	ctx := patience.Context(t)
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	select {
	case err := <-closed:
		must.Do(t, err)
	case <-ctx.Done():
		t.Fatal("the registry does not close")
	}
}

// TestGoneMeanwhile checks a sandbox that ends while a call waits for it.
func TestGoneMeanwhile(t *testing.T) {
	t.Parallel()
	r := New(Options{Store: store.Temporary(t.TempDir())})
	_, connected := r.connected("gone", time.Hour)
	for what, err := range map[string]error{"a resume": connected, "a call that waited": r.busy("gone")} {
		if gone, ok := errors.AsType[*NotFoundError](err); !ok || gone.ID != "gone" {
			t.Errorf("%s: got %v, want that there is no such sandbox", what, err)
		}
	}
	must.Do(t, r.Close())
}
