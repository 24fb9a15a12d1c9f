//go:build linux

package room

import (
	"context"
	"sync"
	"sync/atomic"
)

// spares makes sandboxes ahead of their use, one at a time: namespaces, mounts
// and two starts of a program are most of what a sandbox takes to start, and
// none of it depends on whose it will be.
type spares struct {
	limits  Limits
	ready   chan *Sandbox         // holds the spare; closed when there is no next one
	used    chan struct{}         // another one is wanted
	first   chan struct{}         // closed when the first one is ready, or will not be
	waiting atomic.Bool           // somebody waits for the one that is being made
	making  atomic.Pointer[group] // of the last one that was begun
	cancel  context.CancelFunc    // nil without spares
	keeping sync.WaitGroup
}

// keepSpare has a spare ready until the room ends. One that cannot be made is
// the last: sandboxes start without then, and say what is wrong if it still is.
func (r *Room) keepSpare(ctx context.Context, limits Limits) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.spares.limits, r.spares.cancel = limits, cancel
	r.spares.ready, r.spares.used, r.spares.first = make(chan *Sandbox, 1), make(chan struct{}, 1), make(chan struct{})
	tried := sync.OnceFunc(func() { close(r.spares.first) })
	r.spares.keeping.Go(func() {
		defer close(r.spares.ready)
		defer tried()
		for {
			s, err := r.prepare(ctx, limits, forSpare)
			if err != nil {
				r.options.Logger.DebugContext(ctx, "no spare sandbox could be made", "error", err)
				return
			}
			r.spares.ready <- s
			tried()
			select {
			case <-r.spares.used:
			case <-ctx.Done():
				return
			}
		}
	})
}

// takeSpare gives the spare if it has these limits, else nil. Of those who find
// it taken one waits for the next, which is on its way and so comes sooner than
// one that is begun now. The caller says when it has started what it took: only
// then another is made, which would be in its way.
func (r *Room) takeSpare(ctx context.Context, limits Limits) (s *Sandbox, started func()) {
	if limits != r.spares.limits {
		return nil, nil
	}
	select {
	case s = <-r.spares.ready:
	default:
		if !r.spares.waiting.CompareAndSwap(false, true) {
			return nil, nil
		}
		defer r.spares.waiting.Store(false)
		if making := r.spares.making.Load(); making != nil {
			_ = making.yield(false) // it may be gone
		}
		select {
		case s = <-r.spares.ready:
		case <-ctx.Done():
		}
	}
	return s, func() { r.spares.used <- struct{}{} }
}

// stepBack has the spare that is being made leave the processors to sandboxes that
// are in use, the last one in the middle of its start most likely, while nobody
// waits for it.
func (s *spares) stepBack(making *group) error {
	if err := making.yield(true); err != nil {
		return err
	}
	s.making.Store(making)
	if s.waiting.Load() {
		return making.yield(false)
	}
	return nil
}

// awaitFirst returns when the first spare is ready, or at once without spares.
func (s *spares) awaitFirst(ctx context.Context) {
	if s.first == nil {
		return
	}
	select {
	case <-s.first:
	case <-ctx.Done():
	}
}

// end ends the making of spares. The last one is the room's to close, as all
// sandboxes are.
func (s *spares) end() {
	if s.cancel != nil {
		s.cancel()
		s.keeping.Wait()
	}
}
