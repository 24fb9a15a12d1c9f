package sandbox

import (
	"context"
	"sync"
)

// audience counts the callers that wait for a process. While no caller waits, a paused sandbox is
// not resumed. A nil audience always counts as having a caller.
type audience struct {
	mu   sync.Mutex
	size int
	come chan struct{} // closed while the audience has a caller
}

func newAudience() *audience { return &audience{come: make(chan struct{})} }

// join adds the caller to the audience. The caller stays in the audience until it calls leave.
func (a *audience) join() (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size++; a.size == 1 {
		close(a.come)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.size--; a.size == 0 {
			a.come = make(chan struct{})
		}
	}
}

// await waits until the audience has a caller, reason is closed, or ctx ends.
func (a *audience) await(ctx context.Context, reason <-chan struct{}) {
	if a == nil {
		return
	}
	a.mu.Lock()
	come := a.come
	a.mu.Unlock()
	select {
	case <-come:
	case <-reason:
	case <-ctx.Done():
	}
}
