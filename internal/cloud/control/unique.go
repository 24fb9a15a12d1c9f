package control

import (
	"context"
	"net/http"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// createUnique creates a sandbox. If the request names a label, no other sandbox may have the
// same value of it. Of several requests at once, the first creates a sandbox, and the others
// are refused with its id once it exists.
func (s *Service) createUnique(r *http.Request, request lifecycle.Request) (lifecycle.Sandbox, error) {
	label := r.Header.Get(protocol.HeaderUniqueLabel)
	if label == "" {
		return s.createOnce(r, request)
	}
	value := request.Metadata[label]
	if value == "" {
		return lifecycle.Sandbox{}, invalid("%s names %q, which metadata does not have", protocol.HeaderUniqueLabel, bounded(label))
	}
	done, err := s.unique.begin(r.Context(), [2]string{label, value})
	if err != nil {
		return lifecycle.Sandbox{}, err
	}
	defer done()
	for _, sb := range s.sandboxes.List(func(sb *lifecycle.Sandbox) bool { return sb.Metadata[label] == value }) {
		return lifecycle.Sandbox{}, errorf(http.StatusConflict, "Sandbox %s has the same %s: %s", sb.ID, bounded(label), bounded(value))
	}
	return s.createOnce(r, request)
}

// turns lets callers with the same label run one after the other.
type turns struct {
	mu   sync.Mutex
	busy map[[2]string]chan struct{} // closed at the end
}

// begin waits until no other caller holds the label, or ctx ends.
func (t *turns) begin(ctx context.Context, label [2]string) (done func(), err error) {
	for {
		t.mu.Lock()
		other := t.busy[label]
		if other == nil {
			mine := make(chan struct{})
			if t.busy == nil {
				t.busy = map[[2]string]chan struct{}{}
			}
			t.busy[label] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, label)
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
