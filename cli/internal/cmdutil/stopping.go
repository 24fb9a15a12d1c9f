package cmdutil

import (
	"context"
	"sync/atomic"
	"time"
)

// CleanupGrace limits the clean-up of a command after the first signal to stop, and after the time that
// the command allowed before its clean-up. CI runners kill the process some seconds after their first
// signal.
const CleanupGrace = 5 * time.Second

// Stopping describes the end of a process. The first signal to stop cancels the context of its
// command. A process that does not end within a bound is killed. It is safe for concurrent use.
type Stopping struct {
	second  <-chan struct{}
	allowed atomic.Int64
}

type stoppingKey struct{}

// WithStopping returns a context for commands of a process, and the Stopping of this context. second is
// closed at the second signal.
func WithStopping(ctx context.Context, second <-chan struct{}) (context.Context, *Stopping) {
	s := &Stopping{second: second}
	return context.WithValue(ctx, stoppingKey{}, s), s
}

// StoppingOf returns the Stopping of a context. If it has none, there are no signals.
func StoppingOf(ctx context.Context) *Stopping {
	if s, ok := ctx.Value(stoppingKey{}).(*Stopping); ok {
		return s
	}
	return &Stopping{}
}

// Allow gives the command the time d between the first signal and its clean-up.
func (s *Stopping) Allow(d time.Duration) { s.allowed.Store(int64(d)) }

// Allowed returns the time that the command has before its clean-up.
func (s *Stopping) Allowed() time.Duration { return time.Duration(s.allowed.Load()) }

// Context returns a context that lasts for the allowed time, or until the second signal. It has the
// values of ctx, and does not end with ctx.
func (s *Stopping) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Allowed())
	go func() {
		select {
		case <-s.second:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
