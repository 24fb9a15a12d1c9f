package control

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
)

const (
	headerIdempotency = "Idempotency-Key"

	// maxKeys bounds the keys that are remembered; the oldest go first.
	maxKeys       = 1000
	maxKeyLength  = 255
	keyCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// attempt is a create request that came with a key.
type attempt struct {
	request [sha256.Size]byte
	done    chan struct{} // closed when sb is known
	sb      *sandbox      // nil when it failed
}

// attempts are those that can be asked for again.
type attempts struct {
	byKey map[string]*attempt
	order []string // keys of those that succeeded, the oldest first
}

// once creates a sandbox, or gives the one that an earlier request with the same
// key created or is creating: a client that heard no answer repeats its request
// with the key, and must not get a second sandbox. Without a key it just
// creates. A request that failed may be repeated.
func (s *Service) once(ctx context.Context, key string, q *createRequest, create func() (*sandbox, error)) (*sandbox, error) {
	if key == "" {
		return create()
	}
	if len(key) > maxKeyLength || strings.Trim(key, keyCharacters) != "" {
		return nil, invalid("%s must be 1 to %d lower-case letters, digits and hyphens", headerIdempotency, maxKeyLength)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	request := sha256.Sum256(text)
	for {
		s.mu.Lock()
		a, repeated := s.attempts.byKey[key]
		if !repeated {
			a = &attempt{request: request, done: make(chan struct{})}
			s.attempts.byKey[key] = a
			s.mu.Unlock()
			return s.attempt(key, a, create)
		}
		s.mu.Unlock()
		if a.request != request {
			return nil, errorf(http.StatusUnprocessableEntity, "%s was used for a different request", headerIdempotency)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if a.sb != nil {
			return a.sb, nil
		}
	}
}

func (s *Service) attempt(key string, a *attempt, create func() (*sandbox, error)) (*sandbox, error) {
	sb, err := create()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(a.done)
	if err != nil {
		delete(s.attempts.byKey, key)
		return nil, err
	}
	a.sb = sb
	if len(s.attempts.order) == maxKeys {
		delete(s.attempts.byKey, s.attempts.order[0])
		s.attempts.order = s.attempts.order[1:]
	}
	s.attempts.order = append(s.attempts.order, key)
	return sb, nil
}
