package lifecycle

import "time"

// SetClock sets the host's clock forward or back by d, for this registry.
func (r *Registry) SetClock(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.clock.wall
	r.clock.wall = func() time.Time { return before().Round(0).Add(d) }
}
