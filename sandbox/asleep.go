package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// asleep is the pause that this handle asked for. While it lasts, the calls that it cut
// off wait: only a new call, or Resume, may end what the program wanted.
type asleep struct {
	mu    sync.Mutex
	over  chan struct{} // nil when there is no such pause
	taken bool          // the sandbox is paused; before that it is being paused
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

// end ends the pause.
func (a *asleep) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		close(a.over)
		a.over, a.taken = nil, false
	}
}

// is reports whether the sandbox was paused and, as far as this handle knows, still is:
// whatever it answers from now on shows that it was resumed.
func (a *asleep) is() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
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

// isPaused asks the control plane whether the sandbox is paused.
func (sb *Sandbox) isPaused(ctx context.Context) bool { return sb.pausedSince(ctx, time.Time{}) }

// pausedSince asks the control plane whether the sandbox is paused or, unless begun is
// zero, was resumed after that: a resume is a new start.
func (sb *Sandbox) pausedSince(ctx context.Context, begun time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	return err == nil && (info.State == api.StatePaused || !begun.IsZero() && info.StartedAt.After(begun))
}
