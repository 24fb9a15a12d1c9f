package control

import "time"

// never is a wait that something else ends.
const never = time.Hour

// evictor ends sandboxes whose time is over.
func (s *Service) evictor() {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		expired, next := s.takeExpired()
		for _, sb := range expired {
			s.work.Go(func() { s.end(sb, expiredReason) })
		}
		timer.Reset(next)
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

const expiredReason = "its time was over"

// takeExpired removes the sandboxes whose time is over and tells how long it is
// until the next one's is. It looks at all of them: there are few enough that
// an ordered structure would cost more to read than it saves.
func (s *Service) takeExpired() (expired []*sandbox, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	next = never
	for id, sb := range s.sandboxes {
		left := sb.endAt.Sub(now)
		if left <= 0 {
			expired = append(expired, s.takeLocked(id))
			continue
		}
		next = min(next, left)
	}
	return expired, next
}

// wakeEvictor makes the evictor look again.
func (s *Service) wakeEvictor() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Advance moves the service's clock forward by d, for tests. Sandboxes whose
// time is over then are gone when it returns. It moves lifetimes only: timers
// inside sandboxes keep real time.
func (s *Service) Advance(d time.Duration) {
	s.mu.Lock()
	s.offset += d
	s.mu.Unlock()
	expired, _ := s.takeExpired()
	s.endAll(expired, expiredReason)
	s.wakeEvictor()
}

func (s *Service) nowLocked() time.Time { return time.Now().Add(s.offset).UTC() }
