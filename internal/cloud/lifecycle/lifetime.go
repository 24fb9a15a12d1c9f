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
	end := r.nowLocked().Add(lifetime)
	if last := rec.StartedAt.Add(r.options.MaxLifetime); end.After(last) {
		end = last
	}
	if end.After(rec.EndAt) || !onlyLater {
		rec.EndAt, rec.retryUntil = end, time.Time{}
		r.wakeEvictor()
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
