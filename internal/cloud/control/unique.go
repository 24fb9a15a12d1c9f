package control

import (
	"context"
	"net/http"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// createUnique creates a sandbox. If the request names a label as unique, no other sandbox may
// have the same value of this label. The first of several concurrent requests creates the
// sandbox. The other requests wait until the sandbox exists, and are then refused with its id.
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

// labelLocks has a lock for each label. Callers with the same label run one after the other.
type labelLocks struct {
	mu   sync.Mutex
	busy map[[2]string]chan struct{} // closed when the caller with this label has ended
}

// begin waits until no other caller has the label, or ctx ends. The caller must call done.
func (t *labelLocks) begin(ctx context.Context, label [2]string) (done func(), err error) {
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
