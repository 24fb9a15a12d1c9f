//go:build linux

package room

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLifetime checks that a lifetime that ended before its start stays closed, that its context ends
// with it, and that the first reason for the end is kept.
func TestLifetime(t *testing.T) {
	t.Parallel()
	ended := 0
	cause, result := errors.New("the first reason"), errors.New("the result")
	l := newLifetime(func() error {
		ended++
		return result
	})
	if err := l.err(); err != nil {
		t.Errorf("before the end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var life context.Context
	must.Do(t, l.open(ctx, func(during context.Context) { life = during }))
	cancel() // it bounds only the start
	must.Do(t, life.Err())
	l.fail(cause)
	l.fail(engine.ErrClosed)
	<-l.done
	must.Is(t, l.err(), cause)
	must.Do(t, l.unlessEnding(func() {})) // its end has a reason, and has not begun
	if !l.end() {
		t.Error("it was opened, and the end does not say so")
	}
	must.Is(t, life.Err(), context.Canceled)
	never := func() { t.Error("called while the sandbox ends") }
	must.Is(t, l.unlessEnding(never), engine.ErrGone)
	must.Is(t, l.open(t.Context(), func(context.Context) { never() }), engine.ErrGone)
	for range 2 {
		must.Is(t, l.close(), result)
	}
	unopened := newLifetime(nil)
	if unopened.end() {
		t.Error("it was never opened")
	}
	if ended != 1 {
		t.Errorf("ended %d times, want once", ended)
	}
}
