package layers

import (
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// Locked reports whether the lock of a set is held.
func (s *Set) Locked() bool {
	if !s.mu.TryLock() {
		return true
	}
	s.mu.Unlock()
	return false
}

// Unbalanced returns the differences between a set and its store: layers that are missing from one
// of them, and impossible numbers of holders.
func (s *Set) Unbalanced() (wrong []string) {
	all, err := s.options.Store.Records(store.Layers)
	if err != nil {
		return nil // the store was closed first
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := map[string]string{}
	for _, r := range all {
		stored[r.ID] = r.Dir
	}
	for id, l := range s.layers {
		dir, ok := stored[id]
		if l.holders < 0 || !ok || dir != l.dir {
			wrong = append(wrong, fmt.Sprintf("layer %s has %d holders and directory %q, and the store has it: %t, with %q", id, l.holders, l.dir, ok, dir))
		}
		delete(stored, id)
	}
	for id := range stored {
		wrong = append(wrong, fmt.Sprintf("the store has layer %s, which nobody can hold", id))
	}
	return wrong
}
