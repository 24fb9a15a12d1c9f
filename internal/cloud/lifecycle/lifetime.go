package lifecycle

import "time"

// SetLifetime makes a sandbox live for lifetime from now, but not longer than
// [Registry.MaxLifetime] from its start. It returns a [*NotFoundError] if the
// sandbox does not exist.
func (r *Registry) SetLifetime(id string, lifetime time.Duration) error {
	_, err := r.move(id, lifetime, false)
	return err
}

// Extend is like SetLifetime but never shortens a lifetime. It returns the
// record after the change.
func (r *Registry) Extend(id string, lifetime time.Duration) (Sandbox, error) {
	return r.move(id, lifetime, true)
}

func (r *Registry) move(id string, lifetime time.Duration, onlyLater bool) (Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(id)
	if err != nil {
		return Sandbox{}, err
	}
	end := r.nowLocked().Add(lifetime)
	if last := rec.StartedAt.Add(r.options.MaxLifetime); end.After(last) {
		end = last
	}
	if end.After(rec.EndAt) || !onlyLater {
		rec.EndAt = end
		r.wakeEvictor()
	}
	return rec.Sandbox, nil
}

// Advance moves the clock of lifetimes forward by d, for tests. Sandboxes whose
// lifetime is then over have gone when it returns. It affects only lifetimes:
// timers inside sandboxes use real time.
func (r *Registry) Advance(d time.Duration) {
	r.mu.Lock()
	r.offset += d
	r.mu.Unlock()
	expired, _ := r.takeExpired()
	r.endAll(expired, expiredReason)
	r.wakeEvictor()
}

func (r *Registry) nowLocked() time.Time { return time.Now().Add(r.offset).UTC() }
