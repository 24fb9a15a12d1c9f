package telemetry

import (
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// The tests of this file run before the others, which would wait for a lock that is kept.

// released fails the test at once if a call keeps a lock. Another goroutine may have it for a moment.
func released(t *testing.T, call string, mu *sync.Mutex) {
	t.Helper()
	for range 1_000_000 {
		if mu.TryLock() {
			mu.Unlock()
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%s keeps a lock", call)
}

// TestLocksAreReleased checks that no call keeps a lock, that a sandbox which runs twice counts once, and
// that the registry closes.
func TestLocksAreReleased(t *testing.T) {
	r := New(Options{})
	measure := func() (engine.Usage, bool) { return engine.Usage{}, true }
	runs := func(want int) {
		if r.running != want {
			t.Fatalf("%d sandboxes count as running, want %d", r.running, want)
		}
	}
	for _, call := range []struct {
		name string
		do   func()
		runs int // sandboxes that run afterwards
	}{
		{"Open", func() { r.Open("a") }, 0},
		{"Open again", func() { r.Open("a") }, 0},
		{"Run of nobody", func() { r.Run("nobody", 0, measure) }, 0},
		{"Run", func() { r.Run("a", 0, measure) }, 1},
		{"Run again", func() { r.Run("a", 0, measure) }, 1},
		{"due", func() { r.due(true) }, 1},
		{"Metrics", func() { r.Metrics("a", time.Time{}, time.Now()) }, 1},
		{"Latest", func() { r.Latest("a") }, 1},
		{"Latest of nobody", func() { r.Latest("nobody") }, 1},
		{"Add", func() { r.Add("a", Entry{Message: "m"}) }, 1},
		{"Inside", func() { r.Inside("a", []byte(`{"level":"INFO","msg":"m"}`)) }, 1},
		{"Inside of nobody", func() { r.Inside("nobody", nil) }, 1},
		{"Logger", func() { r.Logger(slog.New(slog.DiscardHandler), "l").InfoContext(t.Context(), "m", "sandbox", "a") }, 1},
		{"Logs", func() { r.Logs("a", Query{}) }, 1},
		{"Logs of nobody", func() { r.Logs("nobody", Query{}) }, 1},
		{"Rest", func() { r.Rest("a") }, 0},
		{"Rest again", func() { r.Rest("a") }, 0},
		{"Run after a rest", func() { r.Run("a", 0, measure) }, 1},
		{"End", func() { r.End("a") }, 0},
		{"End again", func() { r.End("a") }, 0},
	} {
		call.do()
		released(t, call.name, &r.mu)
		r.mu.Lock()
		if rec := r.records["a"]; rec != nil && rec.series.run != nil {
			one := rec.series.run
			r.mu.Unlock()
			released(t, call.name+", of a run,", &one.mu)
			r.mu.Lock()
		}
		runs(call.runs)
		r.mu.Unlock()
	}
	ctx := patience.Context(t)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("the registry does not close")
	}
	released(t, "Close", &r.mu)
}

// TestRemovedLater checks that the log of an ended sandbox is removed after an hour, and that the log of a
// later sandbox with the same id stays: the first one was removed before, to make room.
func TestRemovedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		for _, id := range []string{"a", "b"} {
			r.Open(id)
			r.End(id)
		}
		r.mu.Lock()
		r.removeLocked("a")
		r.mu.Unlock()
		r.Open("a")
		<-time.After(kept + 1)
		synctest.Wait()
		if !r.mu.TryLock() {
			t.Error("the removal of a log keeps the lock")
		}
		if r.records["a"] == nil || r.records["b"] != nil {
			t.Errorf("after an hour there are the logs %v, want that of the later sandbox", r.records)
		}
		r.mu.Unlock()
		r.Close()
	})
}
