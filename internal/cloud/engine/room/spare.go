//go:build linux

package room

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// spares is the warm pool: it makes sandboxes ahead of their use, one at a time.
// Namespaces, mounts and two starts of a program are most of the time that a
// sandbox takes to start, and none of it depends on whose sandbox it will be.
type spares struct {
	limits  engine.Limits
	ready   chan *Sandbox                // holds the spare; closed when there will be no next one
	used    chan struct{}                // another one is wanted
	first   chan struct{}                // closed when the first one is ready, or will never be
	waiting atomic.Bool                  // a caller waits for the one that is being made
	making  atomic.Pointer[cgroup.Group] // group of the last one that was begun
	cancel  context.CancelFunc           // nil without spares
	keeping sync.WaitGroup
}

// keepSpare keeps a spare ready until the room ends. If one cannot be made no more
// are tried: sandboxes then start without a spare, and report what is wrong if it
// still is.
func (r *Room) keepSpare(ctx context.Context, limits engine.Limits) {
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

// takeSpare returns the spare if it has these limits, else nil. If the spare is
// taken, one caller waits for the next, which is already being made and so is ready
// sooner than one begun now. The caller calls started when it has started what it
// took: only then is another spare made, which would otherwise slow it down.
func (r *Room) takeSpare(ctx context.Context, limits engine.Limits) (s *Sandbox, started func()) {
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
			_ = making.Yield(false) // the group may be gone
		}
		select {
		case s = <-r.spares.ready:
		case <-ctx.Done():
		}
	}
	return s, func() { r.spares.used <- struct{}{} }
}

// stepBack makes the spare that is being made leave the processors to sandboxes
// that are in use, as long as nobody waits for it. Most likely the last of these
// sandboxes is in the middle of its start.
func (s *spares) stepBack(making *cgroup.Group) error {
	if err := making.Yield(true); err != nil {
		return err
	}
	s.making.Store(making)
	if s.waiting.Load() {
		return making.Yield(false)
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

// end stops making spares. The room closes the last one, like all sandboxes.
func (s *spares) end() {
	if s.cancel != nil {
		s.cancel()
		s.keeping.Wait()
	}
}
