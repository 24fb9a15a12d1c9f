package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// asleep records the pauses of a handle's sandbox, as far as the handle knows them.
//
// During a pause that this handle asked for, the calls that the pause cut off wait: the program
// wanted the pause, so only a new call, or Resume, may end it.
type asleep struct {
	mu    sync.Mutex
	over  chan struct{} // closed at the end of the handle's own pause; nil without one
	taken bool          // the sandbox is paused; before that it is being paused
	runs  chan struct{} // closed when the sandbox is seen to run; nil if nobody wants to know
}

// begin begins a pause. The returned function says whether the sandbox was paused.
func (a *asleep) begin() (settle func(paused bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		return func(bool) {}
	}
	a.over = make(chan struct{})
	return func(paused bool) {
		a.mu.Lock()
		a.taken = paused
		a.mu.Unlock()
		if !paused {
			a.end()
		}
	}
}

// end ends the pause that this handle asked for: calls that wait for its end continue. Without such
// a pause it does nothing.
func (a *asleep) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		close(a.over)
		a.over, a.taken = nil, false
	}
}

// own reports whether the sandbox is paused because this handle asked for that.
func (a *asleep) own() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

// awake returns a channel that is closed when a request that begins from now on, or
// Resume, shows that the sandbox runs.
func (a *asleep) awake() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = make(chan struct{})
	}
	return a.runs
}

// asking is called when a request begins, and the returned function when the sandbox has
// answered it: it runs, whatever was known of it when the request began.
func (a *asleep) asking() (answered func()) {
	a.mu.Lock()
	taken, runs := a.taken, a.runs
	a.mu.Unlock()
	return func() {
		if taken {
			a.end()
		}
		if runs != nil {
			a.seen(runs)
		}
	}
}

// seen closes the channel, unless it was closed before.
func (a *asleep) seen(runs chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == runs {
		close(runs)
		a.runs = nil
	}
}

// wait waits until the pause is over, and reports whether there was one.
func (a *asleep) wait(ctx context.Context) bool {
	a.mu.Lock()
	over := a.over
	a.mu.Unlock()
	if over == nil {
		return false
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	return true
}

// stateTimeout bounds the question whether a sandbox is paused.
const stateTimeout = 5 * time.Second

// pauseSince asks the control plane whether the sandbox was paused after begun, and
// whether it is paused now. A resume is a new start.
func (sb *Sandbox) pauseSince(ctx context.Context, begun time.Time) (was, is bool) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return false, false
	}
	is = info.State == api.StatePaused
	return is || info.StartedAt.After(begun), is
}

// isPaused asks the control plane whether the sandbox is paused.
func (sb *Sandbox) isPaused(ctx context.Context) bool {
	_, is := sb.pauseSince(ctx, time.Now())
	return is
}
