package control

import (
	"net/http"
	"time"
)

// The handlers of this file check a request before they look for its sandbox, as the service
// does. So a wrong request is refused even if the sandbox does not exist.

func (s *Service) timeout(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Timeout *int32 `json:"timeout"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	switch {
	case q.Timeout == nil:
		return invalid("timeout is missing")
	case *q.Timeout < 0:
		return invalid("timeout must not be negative")
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	if err := s.sandboxes.SetLifetime(id, time.Duration(*q.Timeout)*time.Second); err != nil {
		return err
	}
	noContent(w)
	return nil
}

// Bounds of a refresh, in seconds.
const (
	minRefresh = 15
	maxRefresh = 3600
)

func (s *Service) refresh(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Duration int32 `json:"duration"`
	}
	if err := decode(w, r, &q, true); err != nil {
		return err
	}
	if q.Duration < 0 || q.Duration > maxRefresh {
		return invalid("duration must be between 0 and %d", maxRefresh)
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	if err := s.sandboxes.Extend(id, time.Duration(max(q.Duration, minRefresh))*time.Second); err != nil {
		return err
	}
	noContent(w)
	return nil
}
