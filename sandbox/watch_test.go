package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Of two loops over one watch, the second waits while the first has the turn, or until
// its own context ends.
func TestWatchHasOneReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("it is over")
		w := &Watcher{
			turn: make(chan struct{}, 1), ended: true, err: over,
			waited: func(ctx context.Context) error { return ctx.Err() },
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.turn <- struct{}{} // the first loop has it
		second := make(chan error, 1)
		go func() { _, err := w.next(ctx); second <- err }()
		synctest.Wait()
		if len(second) != 0 {
			t.Error("the second loop did not wait for its turn")
		}
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("the second loop: got %v, want the end of its context", err)
		}
		<-w.turn
		for range 2 { // a loop that ends lets the next one begin
			if _, err := w.next(t.Context()); !errors.Is(err, over) {
				t.Errorf("the next loop: got %v, want %v", err, over)
			}
		}
	})
}

// TestLoopOfAWatchEndsWithItsContext checks that a loop that waits for an event ends with its own
// context, and leaves the event to the next loop.
func TestLoopOfAWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Watcher{
			turn: make(chan struct{}, 1), receiving: true, received: make(chan bool, 1),
			waited: func(ctx context.Context) error { return ctx.Err() },
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			event, err := w.next(ctx)
			cancel()
			if event != nil || !errors.Is(err, context.DeadlineExceeded) || !w.receiving || w.ended {
				t.Errorf("got %v, %v, want the end of the loop's context alone", event, err)
			}
		}
	})
}
