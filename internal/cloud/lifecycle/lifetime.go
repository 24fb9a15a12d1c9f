package lifecycle

import (
	"context"
	"time"
)

// SetLifetime makes a running sandbox live for lifetime from now, but not longer than
// [Registry.MaxLifetime] from its start. It returns a [*NotFoundError] if the sandbox does not
// exist or is paused, and a [*StateError] if its state is changing.
func (r *Registry) SetLifetime(id string, lifetime time.Duration) error {
	return r.move(id, lifetime, false)
}

// Extend is like SetLifetime, but never shortens the sandbox's lifetime.
func (r *Registry) Extend(id string, lifetime time.Duration) error {
	return r.move(id, lifetime, true)
}

func (r *Registry) move(id string, lifetime time.Duration, onlyLater bool) error {
	return r.recorded(context.Background(), id, func() error {
		return r.handle(context.Background(), id, onLifetime, func(rec *record) (*transition, error) {
			r.moveLocked(rec, lifetime, onlyLater)
			if !onlyLater { // clients extend the lifetime every few seconds
				r.eventLocked(rec, Event{Type: EventUpdated, Message: "lifetime", EndAt: rec.EndAt})
			}
			return nil, nil
		})
	})
}

func (r *Registry) moveLocked(rec *record, lifetime time.Duration, onlyLater bool) {
	now := r.clock.since()
	left := min(lifetime, rec.began+r.options.MaxLifetime-now)
	if left > rec.until-now || !onlyLater {
		r.endInLocked(rec, left)
		rec.retryUntil = 0
		r.wakeEvictor()
	}
}

// beginLifeLocked begins the lifetime of a sandbox that starts to run now.
func (r *Registry) beginLifeLocked(rec *record, lifetime time.Duration) {
	lifetime = min(lifetime, r.options.MaxLifetime)
	r.endInLocked(rec, lifetime)
	rec.StartedAt, rec.began = rec.EndAt.Add(-lifetime), rec.until-lifetime
}

// endInLocked makes the lifetime of a sandbox end after left.
func (r *Registry) endInLocked(rec *record, left time.Duration) {
	rec.EndAt, rec.until = r.nowLocked().Add(left), r.clock.since()+left
}

// timeLocked makes the lifetime of a sandbox that another registry started follow the registry's clock.
// The host's clock may have been set since that start. So no such lifetime is longer than
// [Registry.MaxLifetime].
func (r *Registry) timeLocked(rec *record) {
	now, at := r.nowLocked(), r.clock.since()
	rec.began = at - max(0, now.Sub(rec.StartedAt))
	rec.until = at + min(rec.EndAt.Sub(now), r.options.MaxLifetime)
}

// maxDrift is the largest difference between the host's clock and the registry's clock that is not
// corrected in the end of a lifetime, so that this time does not change by itself.
const maxDrift = time.Second

// followClockLocked corrects the time at which the lifetime of a running sandbox ends, if the host's clock
// was set. It leaves out sandboxes that can outlive the registry: their engine ends them at the time that
// it has stored.
func (r *Registry) followClockLocked(rec *record) {
	if !rec.Runs() || rec.outlives() != nil {
		return
	}
	if end := r.nowLocked().Add(rec.until - r.clock.since()); end.Sub(rec.EndAt).Abs() > maxDrift {
		rec.EndAt = end
	}
}

// Advance moves the clock of lifetimes and idle limits forward by d, for tests. When it returns,
// sandboxes whose lifetime is over or whose idle limit is reached have ended or are paused. Advance
// does not affect timers inside sandboxes, because these timers use real time.
func (r *Registry) Advance(d time.Duration) {
	r.mu.Lock()
	r.clock.advance(d)
	over, _ := r.expireAllLocked() // before the evictor does this
	r.mu.Unlock()
	for _, done := range over {
		<-done
	}
	r.wakeEvictor()
}

func (r *Registry) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nowLocked()
}

func (r *Registry) nowLocked() time.Time { return r.clock.now() }
