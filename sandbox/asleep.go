package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// asleep records those pauses of a sandbox that its handle requested or noticed.
//
// Calls may be interrupted by a pause that this handle requested. The interrupted calls wait until
// the pause is over. They do not resume the sandbox, because the program wanted the pause. Only a
// new call, or Resume, may end this pause.
type asleep struct {
	mu    sync.Mutex
	over  chan struct{} // closed at the end of a pause that this handle requested; nil without such a pause
	taken bool          // true: the sandbox is paused; false: the pause has not taken effect yet
	runs  chan struct{} // closed when a request shows that the sandbox runs; nil if no caller waits for this
}

// begin records the beginning of a pause that this handle requests. The caller must call settle
// with true if the sandbox was paused, and otherwise with false.
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

// end records the end of the pause that this handle requested, so that waiting calls continue. If
// there is no such pause, it does nothing.
func (a *asleep) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		close(a.over)
		a.over, a.taken = nil, false
	}
}

// pausedHere reports whether this handle has paused the sandbox.
func (a *asleep) pausedHere() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

// awake returns a channel that is closed when the sandbox is known to run. The sandbox is known to
// run after Resume, and when it has answered a request that began after the call of awake.
func (a *asleep) awake() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = make(chan struct{})
	}
	return a.runs
}

// asking records the beginning of a request. The returned function records that the sandbox has
// answered the request. The answer shows that the sandbox runs.
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

// seen closes the channel runs, unless it was already closed.
func (a *asleep) seen(runs chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == runs {
		close(runs)
		a.runs = nil
	}
}

// wait waits until the pause that this handle requested is over. If there is no such pause, it
// returns false.
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

// stateTimeout limits the time of a request for the sandbox's state.
const stateTimeout = 5 * time.Second

// pauseSince asks the control plane about pauses. was reports whether the sandbox was paused after
// begun. is reports whether it is paused now. If a pause after begun is already over, pauseSince
// recognizes it by the sandbox's start time, because a resume counts as a start.
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
