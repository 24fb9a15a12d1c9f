package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// The interpreter interrupts the code of a request that was cut, but sends the
// next request to the kernel first. The kernel then drops that one together with
// the interrupted code, and the interpreter waits forever for its answer. So this
// handle sends one request at a time to each context, and after a cut it checks
// that the context runs code again before it sends any.

const (
	// interruptOvertake is how long to wait after a cut for the interrupt to arrive.
	interruptOvertake = 500 * time.Millisecond
	// beginPatience is how long the interpreter may take after a cut to run an empty
	// request. It may take five seconds to notice the cut.
	beginPatience = 10 * time.Second
	// beginAttempts is how often it is asked: each attempt that is given up is
	// interrupted as well.
	beginAttempts = 3
)

// requestTurn is the turn of the requests for one context. codeRunner.mu guards
// users; the request that holds the turn owns the rest.
type requestTurn struct {
	key   string
	users int           // requests that hold it or wait
	held  chan struct{} // full while a request is under way
	cut   time.Time     // when the last request ended before its answer did; zero when that is settled
}

// takeRequestTurn waits for the turn of a request. queued is called with the
// number of requests ahead, if there are any.
func (r *codeRunner) takeRequestTurn(ctx context.Context, p *RunCodeParams, queued func(int) error) (*requestTurn, error) {
	key := p.Context
	if key == "" || key == kernelconn.DefaultContext {
		language := cmp.Or(p.Language, kernelconn.DefaultLanguage)
		key = cmp.Or(r.kernels.Default(language), language)
	}
	r.mu.Lock()
	turn := r.requests[key]
	if turn == nil {
		turn = &requestTurn{key: key, held: make(chan struct{}, 1)}
		r.requests[key] = turn
	}
	ahead := turn.users
	turn.users++
	r.mu.Unlock()
	select {
	case turn.held <- struct{}{}:
		return turn, nil
	default:
	}
	if err := queued(max(ahead, 1)); err != nil {
		r.leaveRequestTurn(turn)
		return nil, fmt.Errorf("%w: %w", kernelconn.ErrNotSent, err)
	}
	select {
	case turn.held <- struct{}{}:
		return turn, nil
	case <-ctx.Done():
		r.leaveRequestTurn(turn)
		return nil, fmt.Errorf("%w, for other code of its context runs: %w", kernelconn.ErrNotSent, context.Cause(ctx))
	}
}

func (r *codeRunner) releaseRequestTurn(turn *requestTurn) {
	<-turn.held
	r.leaveRequestTurn(turn)
}

// leaveRequestTurn removes a turn that no request needs.
func (r *codeRunner) leaveRequestTurn(turn *requestTurn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn.users--
	if turn.users == 0 && turn.cut.IsZero() {
		delete(r.requests, turn.key)
	}
}

// settleRequests waits, if the last request of the context was cut, until the
// interpreter runs code there again.
func (r *codeRunner) settleRequests(ctx context.Context, turn *requestTurn, p *RunCodeParams) error {
	nothing := &RunCodeParams{Context: p.Context, Language: p.Language}
	for attempt := 1; !turn.cut.IsZero(); attempt++ {
		if attempt > beginAttempts {
			return fmt.Errorf("%w: after an earlier call was given up, its context began no other code within %v: "+
				"what runs there heeds no interrupt, or is another client's; wait, or end it with Contexts.Restart: %w",
				kernelconn.ErrNotSent, beginAttempts*r.begin, api.ErrRetryable)
		}
		timer := time.NewTimer(time.Until(turn.cut.Add(r.overtake)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w, for code that was given up before is being interrupted: %w", kernelconn.ErrNotSent, context.Cause(ctx))
		}
		turn.cut = time.Time{}
		asking, cancel := context.WithTimeout(ctx, r.begin)
		_, err := r.request(asking, turn, "", nothing, newCollector(nothing))
		unanswered := asking.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w, for code that was given up before is being interrupted: %w", kernelconn.ErrNotSent, context.Cause(ctx))
		case err == nil:
			return nil
		case !unanswered:
			turn.cut = time.Time{}
			return nil // the request that follows gets the same answer
		}
	}
	return nil
}
