package control

import (
	"net/http"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// The handlers of this file check a request before they look for its sandbox, as the service
// does. So a wrong request is refused even if the sandbox does not exist.

// pause answers when the sandbox is paused. A status of 503 means that envd does not answer, or
// that there is no room. The service answers 503 for further reasons, too.
func (s *Service) pause(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Memory              *bool `json:"memory"`
		RequireHealthyGuest bool  `json:"requireHealthyGuest"`
	}
	if err := decode(w, r, &q, true); err != nil {
		return err
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	o := lifecycle.PauseOptions{DropMemory: drops(q.Memory), RequireHealthy: q.RequireHealthyGuest}
	if err := s.sandboxes.Pause(r.Context(), id, o); err != nil {
		return err
	}
	noContent(w)
	return nil
}

// drops reports whether a request drops the memory. The default keeps it.
func drops(memory *bool) bool { return memory != nil && !*memory }

type connectRequest struct {
	Timeout *int32 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

func (s *Service) connect(d dialect) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q connectRequest
		if err := decode(w, r, &q, d.bodyOptional); err != nil {
			return err
		}
		if q.Timeout == nil && !d.bodyOptional {
			return invalid("timeout is missing")
		}
		lifetime, err := s.lifetime(q.Timeout, d)
		if err != nil {
			return err
		}
		id, err := sandboxID(r)
		if err != nil {
			return err
		}
		sb, resumed, err := s.sandboxes.Connect(r.Context(), id, lifecycle.ResumeOptions{Lifetime: lifetime, DropMemory: drops(q.Memory)})
		if err != nil {
			return err
		}
		status := http.StatusOK
		if resumed {
			status = http.StatusCreated
		}
		writeJSON(w, status, s.answer(sb))
		return nil
	}
}

// resume resumes a sandbox for old clients, which were made before the first generation of the API
// had the call connect.
func (s *Service) resume(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		connectRequest
		AutoPause *bool `json:"autoPause"`
	}
	if err := decode(w, r, &q, true); err != nil {
		return err
	}
	lifetime, err := s.lifetime(q.Timeout, version1)
	if err != nil {
		return err
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	sb, err := s.sandboxes.Resume(r.Context(), id, lifecycle.ResumeOptions{Lifetime: lifetime, DropMemory: drops(q.Memory), AutoPause: q.AutoPause})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, s.answer(sb))
	return nil
}
