package lifecycle

import "time"

// never is a wait that ends only through something else.
const never = time.Hour

const expiredReason = "its lifetime was over"

// evictor ends sandboxes whose lifetime is over.
func (r *Registry) evictor() {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		expired, next := r.takeExpired()
		for _, rec := range expired {
			r.work.Go(func() { r.end(rec, expiredReason) })
		}
		timer.Reset(next)
		select {
		case <-r.stop:
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// takeExpired removes the sandboxes whose lifetime is over and returns the time
// until the next one's is. It looks at all of them: there are few enough that an
// ordered structure would cost readers more than it saves.
func (r *Registry) takeExpired() (expired []*record, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.nowLocked()
	next = never
	for id, rec := range r.records {
		left := rec.EndAt.Sub(now)
		if left <= 0 {
			expired = append(expired, r.takeLocked(id))
			continue
		}
		next = min(next, left)
	}
	return expired, next
}

// wakeEvictor makes the evictor check again.
func (r *Registry) wakeEvictor() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
