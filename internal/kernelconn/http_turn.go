package kernelconn

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// The interpreter interrupts the code of a request that was cut, but sends the next
// request to the kernel first. The kernel then drops that request together with the
// interrupted code, and the interpreter waits forever for its answer. So this handle
// sends one request at a time to each context, and after a cut it checks that the
// context runs code again before it sends any.

// beginAttempts bounds the number of attempts, after a request was cut, to find out whether the
// interpreter runs code again. An attempt that takes too long is interrupted, too.
const beginAttempts = 3

// requestTurn is the turn of the requests for one context. Kernels.mu guards users;
// the other fields belong to the request that holds the turn.
type requestTurn struct {
	key   string
	users int           // the number of requests that hold the turn or wait for it
	held  chan struct{} // full while a request is under way
	cut   time.Time     // the time at which the last request ended before its answer was complete; zero once the interpreter runs code again
}

// takeRequestTurn waits for the turn of a request.
func (ks *Kernels) takeRequestTurn(ctx context.Context, c HTTPCall) (*requestTurn, error) {
	ks.mu.Lock()
	key := c.Context
	if key == "" || key == DefaultContext {
		language := cmp.Or(c.Language, DefaultLanguage)
		key = cmp.Or(ks.defaults[language], language)
	}
	turn := ks.requests[key]
	if turn == nil {
		turn = &requestTurn{key: key, held: make(chan struct{}, 1)}
		ks.requests[key] = turn
	}
	ahead := turn.users
	turn.users++
	ks.mu.Unlock()
	select {
	case turn.held <- struct{}{}:
		return turn, nil
	default:
	}
	if c.Queued != nil {
		if err := c.Queued(max(ahead, 1)); err != nil {
			ks.leaveRequestTurn(turn)
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	select {
	case turn.held <- struct{}{}:
		return turn, nil
	case <-ctx.Done():
		ks.leaveRequestTurn(turn)
		return nil, fmt.Errorf("%w, for other code of its context runs: %w", ErrNotSent, context.Cause(ctx))
	}
}

func (ks *Kernels) releaseRequestTurn(turn *requestTurn) {
	<-turn.held
	ks.leaveRequestTurn(turn)
}

// leaveRequestTurn gives up a request's use of a turn, and removes a turn without users.
func (ks *Kernels) leaveRequestTurn(turn *requestTurn) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	turn.users--
	if turn.users == 0 && turn.cut.IsZero() {
		delete(ks.requests, turn.key)
	}
}

// settleRequests waits until the interpreter runs code in the context again, if the last request
// for the context was cut. Otherwise it does nothing.
func (ks *Kernels) settleRequests(ctx context.Context, turn *requestTurn, c HTTPCall) error {
	nothing := HTTPCall{Context: c.Context, Language: c.Language}
	for attempt := 1; !turn.cut.IsZero(); attempt++ {
		if attempt > beginAttempts {
			return fmt.Errorf("%w: after an earlier call was given up, its context began no other code within %v: "+
				"what runs there heeds no interrupt, or is another client's; wait, or end it with Contexts.Restart: %w",
				ErrNotSent, beginAttempts*ks.Timings.BeginPatience, api.ErrRetryable)
		}
		timer := time.NewTimer(time.Until(turn.cut.Add(ks.Timings.InterruptOvertake)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w, for code that was given up before is being interrupted: %w", ErrNotSent, context.Cause(ctx))
		}
		turn.cut = time.Time{}
		asking, cancel := context.WithTimeout(ctx, ks.Timings.BeginPatience)
		_, err := ks.request(asking, turn, nothing)
		unanswered := asking.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w, for code that was given up before is being interrupted: %w", ErrNotSent, context.Cause(ctx))
		case err == nil:
			return nil
		case !unanswered:
			turn.cut = time.Time{}
			return nil // the request that follows gets the same answer
		}
	}
	return nil
}
