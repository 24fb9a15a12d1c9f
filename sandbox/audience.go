package sandbox

import (
	"context"
	"sync"
)

// audience counts the callers that wait for a process. A sandbox that was paused is not
// resumed until there is one. A nil audience always has one.
type audience struct {
	mu   sync.Mutex
	size int
	come chan struct{} // closed while there is somebody
}

func newAudience() *audience { return &audience{come: make(chan struct{})} }

// join makes the caller one of the audience, until it calls leave.
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

// await waits until there is somebody, or until there is another reason not to wait.
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
