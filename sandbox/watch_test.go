package sandbox

import (
	"context"
	"errors"
	"testing"
)

// Of two loops over one watch, the second touches nothing while the first waits for an
// event, and ends with its own context.
func TestWatchHasOneReader(t *testing.T) {
	t.Parallel()
	over := errors.New("it is over")
	w := &Watcher{
		turn: make(chan struct{}, 1), ended: true, err: over,
		waited: func(ctx context.Context) error { return ctx.Err() },
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	w.turn <- struct{}{} // the first loop has it
	if _, err := w.next(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("the second loop: got %v, want the end of its context", err)
	}
	<-w.turn
	for range 2 { // each gives the turn back
		if _, err := w.next(t.Context()); !errors.Is(err, over) {
			t.Errorf("the next loop: got %v, want %v", err, over)
		}
	}
}
