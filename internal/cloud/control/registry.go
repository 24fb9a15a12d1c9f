package control

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

var errClosing = &apiError{Code: http.StatusServiceUnavailable, Message: "the local cloud is closing"}

// reserve takes a slot for a sandbox before it is started, so that many
// requests at once do not start more than there may be.
func (s *Service) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosing
	case s.slots >= s.options.MaxSandboxes:
		// Without Retry-After: a client that waits silently would hide this.
		return errorf(http.StatusTooManyRequests, "you have reached the maximum number of concurrent sandboxes, %d", s.options.MaxSandboxes)
	}
	s.slots++
	return nil
}

func (s *Service) release() {
	s.mu.Lock()
	s.slots--
	s.mu.Unlock()
}

// add records a started sandbox. It reports false when the service closed.
func (s *Service) add(sb *sandbox, lifetime time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	sb.startedAt = s.nowLocked()
	sb.endAt = sb.startedAt.Add(lifetime)
	s.sandboxes[sb.id] = sb
	s.wakeEvictor()
	s.work.Go(func() { s.watch(sb) })
	return true
}

// watch forgets a sandbox that ends by itself.
func (s *Service) watch(sb *sandbox) {
	<-sb.instance.Done()
	if s.take(sb.id) == sb {
		s.end(sb, fmt.Sprintf("it died: %v", sb.instance.Err()))
	}
}

// take removes a sandbox from the records; nobody finds it from then on. Who
// gets it must end it.
func (s *Service) take(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(id)
}

func (s *Service) takeLocked(id string) *sandbox {
	sb := s.sandboxes[id]
	delete(s.sandboxes, id)
	return sb
}

// end closes what was taken and frees its slot.
func (s *Service) end(sb *sandbox, how string) {
	s.mu.Lock()
	s.ended.add(sb.id, s.nowLocked(), how)
	s.mu.Unlock()
	ctx := context.Background()
	if err := sb.instance.Close(); err != nil {
		s.options.Logger.ErrorContext(ctx, "sandbox not closed cleanly", "sandbox", sb.id, "error", err)
	}
	s.release()
	s.options.Logger.InfoContext(ctx, "sandbox ended", "sandbox", sb.id, "how", how)
}

func (s *Service) endAll(all []*sandbox, how string) {
	var work sync.WaitGroup
	for _, sb := range all {
		work.Go(func() { s.end(sb, how) })
	}
	work.Wait()
}

func (s *Service) endOf(sb *sandbox) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sb.endAt
}

// maxObituaries bounds what is remembered of sandboxes that ended.
const maxObituaries = 1000

// obituaries remember for a while how sandboxes ended.
type obituaries struct {
	how   map[string]string
	order []string
}

func (o *obituaries) add(id string, at time.Time, how string) {
	if o.how == nil {
		o.how = map[string]string{}
	}
	if len(o.order) == maxObituaries {
		delete(o.how, o.order[0])
		o.order = o.order[1:]
	}
	o.order = append(o.order, id)
	o.how[id] = fmt.Sprintf(": %s at %s", bounded(how), at.Format(time.RFC3339))
}

// of gives the end of an error message about id, "" when nothing is known.
func (o *obituaries) of(id string) string { return o.how[id] }
