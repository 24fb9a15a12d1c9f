package control

import (
	"net/http"
	"time"
)

type timeoutRequest struct {
	Timeout *int32 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

func (s *Service) connect(d dialect) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		sb, err := s.find(r)
		if err != nil {
			return err
		}
		var q timeoutRequest
		if err := decode(w, r, &q, d.bodyOptional); err != nil {
			return err
		}
		switch {
		case q.Timeout == nil && !d.bodyOptional:
			return invalid("timeout is missing")
		case q.Memory != nil && !*q.Memory:
			return unsupported("memory (false)")
		}
		lifetime, err := s.lifetime(q.Timeout, d)
		if err != nil {
			return err
		}
		if sb, err = s.sandboxes.Extend(sb.ID, lifetime); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, s.answer(sb))
		return nil
	}
}

// resume has nothing to do here, because sandboxes are never paused.
func (s *Service) resume(_ http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	return errorf(http.StatusConflict, "Sandbox %s is already running", sb.ID)
}

func (s *Service) timeout(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
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
	if err := s.sandboxes.SetLifetime(sb.ID, time.Duration(*q.Timeout)*time.Second); err != nil {
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
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	var q struct {
		Duration int32 `json:"duration"`
	}
	if err := decode(w, r, &q, true); err != nil {
		return err
	}
	if q.Duration < 0 || q.Duration > maxRefresh {
		return invalid("duration must be between 0 and %d", maxRefresh)
	}
	if _, err := s.sandboxes.Extend(sb.ID, time.Duration(max(q.Duration, minRefresh))*time.Second); err != nil {
		return err
	}
	noContent(w)
	return nil
}
