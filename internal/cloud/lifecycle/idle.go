package lifecycle

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// clock is the clock of a registry. If the host's clock is set forward or back, now changes, but since
// does not. Lifetimes and idle limits follow since, so that they stay as long as they are.
type clock struct {
	start time.Time
	wall  func() time.Time // [time.Now]; in tests, a clock that is set forward and back
	ahead atomic.Int64     // nanoseconds that Advance has added
}

func newClock() *clock { return &clock{start: time.Now(), wall: time.Now} }

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func (c *clock) now() time.Time { return c.wall().Add(time.Duration(c.ahead.Load())).UTC() }

// since returns the time since the start of the registry.
func (c *clock) since() time.Duration {
	return time.Since(c.start) + time.Duration(c.ahead.Load())
}

// Use is the time at which a sandbox with an idle limit was last used.
type Use struct {
	clock *clock
	last  atomic.Int64 // a value of clock.since
}

// Note records that the sandbox is used now. It is safe for concurrent use, and takes no lock.
func (u *Use) Note() { u.last.Store(int64(u.clock.since())) }

// unused returns the time since the last use.
func (u *Use) unused() time.Duration { return u.clock.since() - time.Duration(u.last.Load()) }

// newUse returns the use of a sandbox; nil if the sandbox has no idle limit.
func (r *Registry) newUse(q *Request) *Use {
	if q.Idle == 0 {
		return nil
	}
	u := &Use{clock: r.clock}
	u.Note()
	return u
}

// noteUseLocked records that a sandbox with an idle limit is used now.
func (rec *record) noteUseLocked() {
	if rec.use != nil {
		rec.use.Note()
	}
}

// busyDeadline bounds the time within which a sandbox must answer whether it is busy.
const busyDeadline = 5 * time.Second

// idleLocked handles the idle limit of a running sandbox. It returns the time until the limit. If the
// limit is reached, it starts to ask the sandbox whether it is busy, and returns a channel that is closed
// when the sandbox is paused, has ended, or has turned out to be busy.
func (r *Registry) idleLocked(rec *record) (settled <-chan struct{}, left time.Duration) {
	switch {
	case rec.use == nil:
		return nil, never
	case rec.asking != nil:
		return rec.asking, never
	}
	if left = rec.Idle - rec.use.unused(); left > 0 {
		return nil, left
	}
	done, instance := make(chan struct{}), rec.instance
	rec.asking = done
	r.work.Go(func() {
		defer close(done)
		busy := r.busyNow(rec.ID, instance)
		r.mu.Lock()
		rec.asking = nil
		if busy {
			rec.use.Note()
		}
		var over <-chan struct{}
		if rec.State == Running && !r.closed && rec.use.unused() >= rec.Idle {
			over = r.expireLocked(rec, true)
		}
		r.mu.Unlock()
		r.wakeEvictor()
		if over != nil {
			<-over
		}
	})
	return done, never
}

// busyNow asks a sandbox whether it is busy. A sandbox that does not answer counts as busy, so that no
// work is lost because a machine is slow. Its lifetime still ends it.
func (r *Registry) busyNow(id string, instance Instance) bool {
	ctx, cancel := context.WithTimeout(context.Background(), busyDeadline)
	defer cancel()
	busy, err := instance.Busy(ctx)
	if err != nil && instance.Err() == nil {
		r.options.Logger.WarnContext(ctx, "a sandbox did not answer whether it is in use", "sandbox", id, "error", err)
		return true
	}
	return busy
}

// unusedEnd is the end of a sandbox that reached its idle limit.
func unusedEnd(limit time.Duration) end {
	return end{Idle, fmt.Sprintf("nothing used it for %v", limit)}
}
