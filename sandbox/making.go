package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// createTimeout limits the wait for a creation whose context has ended. The service answers
	// or cuts the connection within 70 seconds.
	createTimeout = 75 * time.Second
	// createGrace limits the rest of the wait of [createTimeout] after the client was closed.
	createGrace = 2 * time.Second
)

// making makes the call that creates sandboxes with the lifetime life. The call may take as long as
// ctx and the API allow. If ctx ends first, making returns the cause at once. If the call then
// still creates sandboxes, they are killed as soon as the answer of the call arrives. Close of the
// client waits until they are killed.
func making[T any](ctx context.Context, c *Client, life time.Duration, create func(context.Context) (T, error), of func(T) []*api.Sandbox) (T, error) {
	var none T
	if err := c.begin(); err != nil {
		return none, err
	}
	type answer struct {
		made T
		err  error
	}
	answered := make(chan answer, 1)
	call, cancel := outliving(ctx)
	go func() {
		made, err := create(call)
		answered <- answer{made, err}
	}()
	select {
	case a := <-answered:
		cancel()
		c.pending.Done()
		return a.made, uncancelled(a.err)
	case <-ctx.Done():
		go func() {
			defer c.pending.Done()
			defer cancel()
			defer time.AfterFunc(createTimeout, cancel).Stop()
			var a answer
			select {
			case a = <-answered:
			case <-c.hurry:
				cancel()
				a = <-answered
			}
			switch {
			case a.err == nil:
				c.undo(ctx, of(a.made))
			case call.Err() != nil:
				c.api.Logger().WarnContext(ctx, "the service did not answer a creation that was given up: what it made lives until its lifetime is over", "lifetime", life)
			}
		}()
		return none, context.Cause(ctx)
	}
}

// outliving returns a context for a call that continues after ctx has ended, because only the
// answer of the call names the sandboxes to kill. outliving keeps a deadline of ctx, because the
// API derives from it the time that it allows for the call.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, set := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !set {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(createTimeout))
}

// undo kills sandboxes whose creation was abandoned.
func (c *Client) undo(ctx context.Context, made []*api.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout-createGrace)
	defer cancel()
	var killing sync.WaitGroup
	for _, sb := range made {
		killing.Go(func() {
			err := c.api.Sandboxes.Kill(ctx, sb.ID)
			if err != nil && !errors.Is(err, api.ErrNotFound) {
				c.api.Logger().WarnContext(ctx, "a sandbox that was given up may live until its timeout", "sandbox", sb.ID, "error", err)
			}
		})
	}
	killing.Wait()
}
