package lifecycle

import "time"

// SetClock sets the host's clock forward or back by d, for this registry.
func (r *Registry) SetClock(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.clock.wall
	r.clock.wall = func() time.Time { return before().Round(0).Add(d) }
}

// ExpireAfter ends the sandboxes whose lifetime is over, as if that of one of them ended after left. It
// returns their number, and the time until the next end.
func (r *Registry) ExpireAfter(id string, left time.Duration) (over int, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[id].until = r.clock.since() + left
	all, next := r.expireAllLocked()
	return len(all), next
}

// Locked reports whether a lock of the registry is held now.
func (r *Registry) Locked() bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	if !r.events.mu.TryLock() {
		return true
	}
	r.events.mu.Unlock()
	for _, rec := range r.records {
		if !rec.storing.TryLock() {
			return true
		}
		rec.storing.Unlock()
	}
	return false
}

// Remembered returns the sandbox of an earlier request with an idempotency key; "" if there is none.
func (r *Registry) Remembered(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.attempts.byKey[key]; a != nil && a.sb != nil {
		return a.sb.ID
	}
	return ""
}
