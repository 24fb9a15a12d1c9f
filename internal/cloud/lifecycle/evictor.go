package lifecycle

import "time"

// never is the time for which the timer waits if no lifetime ends earlier. Other events wake the
// evictor.
const never = time.Hour

// evictor pauses or ends sandboxes whose lifetime is over, and those that reached their idle limit.
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

// expireAllLocked starts to pause or end the sandboxes whose lifetime is over or whose idle limit is
// reached. It returns channels that are closed when the sandboxes are paused, have ended or turned
// out to be busy. It also returns the time until the next lifetime or idle limit is over. It checks
// all running sandboxes, because only a few sandboxes run, and an ordered structure would make
// every change of a lifetime slower.
func (r *Registry) expireAllLocked() (over []<-chan struct{}, next time.Duration) {
	next = never
	if r.closed {
		return nil, next
	}
	now := r.clock.since()
	for _, rec := range r.running {
		left := rec.until - now
		if left <= 0 {
			over = append(over, r.expireLocked(rec, false))
			continue
		}
		settled, idle := r.idleLocked(rec)
		if settled != nil {
			over = append(over, settled)
		}
		next = min(next, left, idle)
	}
	return over, next
}

// wakeEvictor makes the evictor check the lifetimes again.
func (r *Registry) wakeEvictor() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
