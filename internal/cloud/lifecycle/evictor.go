package lifecycle

import "time"

// never is the timer's wait if no lifetime ends: other events wake the evictor.
const never = time.Hour

// evictor pauses or ends sandboxes whose lifetime is over.
func (r *Registry) evictor() {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		r.mu.Lock()
		_, next := r.expireAllLocked()
		r.mu.Unlock()
		timer.Reset(next)
		select {
		case <-r.stop:
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// expireAllLocked begins to pause or end the sandboxes whose lifetime is over. It returns
// channels that are closed when that is done, and the time until the next lifetime is
// over. It looks at all running sandboxes: there are so few that an ordered structure
// would cost readers more than it saves.
func (r *Registry) expireAllLocked() (over []<-chan struct{}, next time.Duration) {
	next = never
	if r.closed {
		return nil, next
	}
	now := r.nowLocked()
	for _, rec := range r.running {
		left := rec.EndAt.Sub(now)
		if left <= 0 {
			over = append(over, r.expireLocked(rec))
			continue
		}
		next = min(next, left)
	}
	return over, next
}

// wakeEvictor makes the evictor check again.
func (r *Registry) wakeEvictor() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
