//go:build linux

package room

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// warmPool makes sandboxes ahead of their use, one at a time. Namespaces, mounts and two starts of
// a program take most of the time of a sandbox's start, and none of it depends on the sandbox's
// owner. The fork of its first kernel also takes time and does not depend on the owner.
type warmPool struct {
	limits  engine.Limits
	ready   chan *Sandbox // contains the warm sandboxes; closed when no more will be made
	used    chan struct{} // receives a value when a warm sandbox must be made: at the start, and when one was taken
	first   chan struct{} // closed when the first warm sandbox is ready, or when none will be made
	waiting atomic.Bool   // a caller waits for the sandbox that is being made
	// codeRuns is set to true when a sandbox requests a kernel. It is set to false when a used sandbox
	// ends and no code was run in it.
	codeRuns atomic.Bool
	making   atomic.Pointer[cgroup.Group] // control group of the warm sandbox whose start began last
	cancel   context.CancelFunc           // stops making warm sandboxes; nil if no warm sandboxes are made
	keeping  sync.WaitGroup
}

// keepWarm keeps count warm sandboxes ready until the room ends. If a warm sandbox cannot be made,
// keepWarm stops trying. Sandboxes then start without a warm sandbox, and report the error if it
// persists.
func (r *Room) keepWarm(ctx context.Context, limits engine.Limits, count int) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.warm.limits, r.warm.cancel = limits, cancel
	r.warm.ready, r.warm.used, r.warm.first = make(chan *Sandbox, count), make(chan struct{}, count), make(chan struct{})
	r.warm.used <- struct{}{}
	tried := sync.OnceFunc(func() { close(r.warm.first) })
	r.warm.keeping.Go(func() {
		defer close(r.warm.ready)
		defer tried()
		more := count - 1 // these are not made before the first one may have been used
		// grow is ready when one more sandbox is due, and lacking when kernels are due for warm
		// sandboxes that have none.
		var grow, lacking <-chan time.Time
		for {
			select {
			case <-r.warm.used:
			case <-grow:
				more, grow = more-1, nil
			case <-r.zygote.warmed:
				lacking = time.After(calm)
				continue
			case <-r.trees.private.changed:
				r.dropOutdated()
				continue
			case <-lacking:
				lacking = nil
				r.forkForReady(ctx)
				continue
			case <-ctx.Done():
				return
			}
			s, err := r.prepare(ctx, limits, forPool)
			if err != nil {
				r.options.Logger.DebugContext(ctx, "no warm sandbox could be made", "error", err)
				return
			}
			if r.warm.waiting.Load() || !r.warm.codeRuns.Load() { // the fork would slow down a waiting caller
				lacking = time.After(calm)
			} else {
				s.forkAhead(ctx)
			}
			r.warm.ready <- s
			tried()
			if more > 0 && grow == nil {
				grow = time.After(calm)
			}
		}
	})
}

// dropOutdated closes the outdated warm sandboxes, so that new ones replace them.
func (r *Room) dropOutdated() {
	for range len(r.warm.ready) {
		select {
		case s := <-r.warm.ready:
			if s.files.outdated(r.trees.private.result.Load()) {
				_ = s.Close() // the keeper removes the rest
				r.warm.used <- struct{}{}
			} else {
				r.warm.ready <- s
			}
		default: // a caller has taken it
			return
		}
	}
}

// takeWarm returns a warm sandbox if the warm sandboxes have these limits. Otherwise it returns
// nil. If all warm sandboxes are taken, one caller waits for the next warm sandbox. That sandbox is
// already being made, so it is ready sooner than a sandbox begun now. The caller must call started
// when its sandbox has started. Only then is another warm sandbox made, because making it earlier
// would slow down the caller's sandbox.
func (r *Room) takeWarm(ctx context.Context, limits engine.Limits) (s *Sandbox, started func()) {
	if limits != r.warm.limits {
		return nil, nil
	}
	select {
	case s = <-r.warm.ready:
	default:
		if !r.warm.waiting.CompareAndSwap(false, true) {
			return nil, nil
		}
		defer r.warm.waiting.Store(false)
		if making := r.warm.making.Load(); making != nil {
			_ = making.Yield(false) // the group may be gone
		}
		select {
		case s = <-r.warm.ready:
		case <-ctx.Done():
		}
	}
	return s, func() { r.warm.used <- struct{}{} }
}

// stepBack makes the warm sandbox that is being made leave the processors to the sandboxes that are
// in use, as long as nobody waits for the warm sandbox. The reason is that the newest sandbox in
// use is most likely in the middle of its start.
func (s *warmPool) stepBack(making *cgroup.Group) error {
	if err := making.Yield(true); err != nil {
		return err
	}
	s.making.Store(making)
	if s.waiting.Load() {
		return making.Yield(false)
	}
	return nil
}

// awaitFirst waits until the first warm sandbox is ready. If no warm sandboxes are made, it returns
// at once.
func (s *warmPool) awaitFirst(ctx context.Context) {
	if s.first == nil {
		return
	}
	select {
	case <-s.first:
	case <-ctx.Done():
	}
}

// end stops making warm sandboxes. It does not close the warm sandbox that was made last: the room
// closes it together with all other sandboxes.
func (s *warmPool) end() {
	if s.cancel != nil {
		s.cancel()
		s.keeping.Wait()
	}
}
