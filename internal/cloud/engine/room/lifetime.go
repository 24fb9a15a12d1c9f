//go:build linux

package room

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// lifetime is the time during which a sandbox can be used, and the reason for its end.
type lifetime struct {
	done   chan struct{} // closed when the reason for the end is known
	reason atomic.Pointer[error]
	close  func() error // ends the sandbox; later calls return the result of the first call

	mu     sync.Mutex
	ending bool
	cancel context.CancelFunc // ends the context that open makes; nil before open
}

// newLifetime returns the lifetime of a sandbox that end ends.
func newLifetime(end func() error) lifetime {
	return lifetime{done: make(chan struct{}), close: sync.OnceValue(end)}
}

// fail records the reason for the sandbox's end. Later reasons are ignored.
func (l *lifetime) fail(err error) {
	if l.reason.CompareAndSwap(nil, &err) {
		close(l.done)
	}
}

// err returns the reason for the sandbox's end; nil before the end.
func (l *lifetime) err() error {
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// open calls begin with a context that ends when the sandbox begins to end. If this has already
// happened, open returns [engine.ErrGone].
func (l *lifetime) open(ctx context.Context, begin func(life context.Context)) error {
	return l.unlessEnding(func() {
		var life context.Context
		life, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
		begin(life)
	})
}

// unlessEnding calls f, which happens before the sandbox begins to end. If the end has already begun,
// unlessEnding returns [engine.ErrGone].
func (l *lifetime) unlessEnding(f func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return engine.ErrGone
	}
	f()
	return nil
}

// end begins the end. It ends the context of open, if the sandbox was opened.
func (l *lifetime) end() (opened bool) {
	l.mu.Lock()
	l.ending = true
	cancel := l.cancel
	l.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel()
	return true
}
