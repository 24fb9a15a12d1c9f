//go:build linux

package runtime

import (
	"context"
	"sync"
)

// spares makes sandboxes ahead of their use, one at a time: namespaces, mounts
// and two starts of a program are most of what a sandbox takes to start, and
// none of it depends on whose it will be.
type spares struct {
	limits  Limits
	ready   chan *Sandbox      // holds the spare
	used    chan struct{}      // another one is wanted
	cancel  context.CancelFunc // nil without spares
	keeping sync.WaitGroup
}

// keepSpare has a spare ready until the room ends. One that cannot be made is
// the last: sandboxes start without then, and say what is wrong if it still is.
func (r *Room) keepSpare(ctx context.Context, limits Limits) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.spares.limits, r.spares.cancel = limits, cancel
	r.spares.ready, r.spares.used = make(chan *Sandbox, 1), make(chan struct{}, 1)
	r.spares.keeping.Go(func() {
		for {
			s, err := r.prepare(ctx, limits)
			if err != nil {
				r.options.Logger.DebugContext(ctx, "no spare sandbox could be made", "error", err)
				return
			}
			r.spares.ready <- s
			select {
			case <-r.spares.used:
			case <-ctx.Done():
				return
			}
		}
	})
}

// takeSpare gives the spare if it is ready and has these limits, else nil: to
// wait for one would take no less than to make one. The caller says when it has
// started what it took: only then another is made, which would be in its way.
func (r *Room) takeSpare(limits Limits) (s *Sandbox, started func()) {
	if limits != r.spares.limits {
		return nil, nil
	}
	select {
	case s := <-r.spares.ready:
		return s, func() { r.spares.used <- struct{}{} }
	default:
		return nil, nil
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
