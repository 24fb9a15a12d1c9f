package lifecycle_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// holding is a set of layers. It counts the layers that the test itself holds.
type holding struct {
	*layers.Set
	mu   sync.Mutex
	held map[string]int
}

func (h *holding) count(ids []string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.held[id] += by
	}
}

func (h *holding) Hold(ids ...string) ([]string, error) {
	dirs, err := h.Set.Hold(ids...)
	if err == nil {
		h.count(ids, 1)
	}
	return dirs, err
}

func (h *holding) Release(ids ...string) {
	h.count(ids, -1)
	h.Set.Release(ids...)
}

// Snapshot takes a snapshot with the registry. The test then holds the layers of the snapshot.
func (s *stage) Snapshot(ctx context.Context, id string, memory *bool) (lifecycle.Checkpoint, error) {
	made, err := s.Registry.Snapshot(ctx, id, memory)
	s.layers.count(made.Layers, 1)
	return made, err
}

// Close closes the registry, and checks all counters before and after the call.
func (s *stage) Close() error {
	s.t.Helper()
	err := end(s.t, s.Registry)
	s.layers.mu.Lock()
	held := maps.Clone(s.layers.held)
	s.layers.mu.Unlock()
	s.mu.Lock()
	ended := maps.Clone(s.ended)
	s.mu.Unlock()
	for _, wrong := range append(s.Leftover(s.dir, held), s.Misreported(s.fakes.IDs(), ended)...) {
		s.t.Error(wrong)
	}
	return err
}

// end closes a registry, and checks its counters before and after the call.
func end(t *testing.T, r *lifecycle.Registry) error {
	t.Helper()
	wrong := r.Unbalanced()
	err := r.Close()
	for _, wrong := range append(wrong, r.Unbalanced()...) {
		t.Error(wrong)
	}
	return err
}
