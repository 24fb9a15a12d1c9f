package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// asleep records the pauses of a handle's sandbox that the handle knows about.
//
// During a pause that this handle requested, the calls that the pause interrupted wait. The
// program wanted the pause, so only a new call, or Resume, may end it.
type asleep struct {
	mu    sync.Mutex
	over  chan struct{} // closed at the end of a pause that this handle requested; nil without such a pause
	taken bool          // true: the sandbox is paused; false: the pause has not taken effect yet
	runs  chan struct{} // closed when a request shows that the sandbox runs; nil if nobody waits for that
}

// begin begins a pause. The caller passes to settle whether the sandbox was paused.
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

// end ends the pause that this handle requested, so that waiting calls continue. Without such a
// pause it does nothing.
func (a *asleep) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		close(a.over)
		a.over, a.taken = nil, false
	}
}

// own reports whether this handle has paused the sandbox.
func (a *asleep) own() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

// awake returns a channel that is closed when the sandbox is known to run: when a request that
// begins after this call is answered, or by Resume.
func (a *asleep) awake() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = make(chan struct{})
	}
	return a.runs
}

// asking records the beginning of a request. The returned function records that the sandbox has
// answered, which shows that it runs.
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

// wait waits until the pause that this handle requested is over. It returns false if there is no
// such pause.
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

// pauseSince asks the control plane whether the sandbox was paused after begun (was), and
// whether it is paused now (is). It recognizes a pause after begun by a new start time, because
// a resume counts as a start.
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
