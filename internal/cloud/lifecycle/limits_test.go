package lifecycle_test

import (
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// TestLimits checks that each limit allows exactly its number of sandboxes, or of bytes of their
// memory, and refuses one more.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit  lifecycle.Options
		pause  lifecycle.PauseOptions
		memory []int64 // memory of each sandbox; the last sandbox is refused
	}{
		"kept":          {lifecycle.Options{MaxKept: 2}, lifecycle.PauseOptions{DropMemory: true}, []int64{0, 0, 0}},
		"frozen":        {lifecycle.Options{MaxFrozen: 2}, lifecycle.PauseOptions{}, []int64{0, 0, 0}},
		"frozen memory": {lifecycle.Options{MaxFrozenMemory: 100}, lifecycle.PauseOptions{}, []int64{40, 60, 1}},
		"too much":      {lifecycle.Options{MaxFrozenMemory: 100}, lifecycle.PauseOptions{}, []int64{99, 2}},
		"all at once":   {lifecycle.Options{MaxFrozenMemory: 100}, lifecycle.PauseOptions{}, []int64{101}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, func(o *lifecycle.Options) {
				o.MaxKept, o.MaxFrozen, o.MaxFrozenMemory = tt.limit.MaxKept, tt.limit.MaxFrozen, tt.limit.MaxFrozenMemory
			})
			for i, bytes := range tt.memory {
				id := s.create(t)
				s.fakes.Fake(id).Use(bytes)
				err := s.Pause(t.Context(), id, tt.pause)
				_, kept := errors.AsType[*lifecycle.KeptLimitError](err)
				_, frozen := errors.AsType[*lifecycle.FrozenLimitError](err)
				over := i == len(tt.memory)-1
				if (kept || frozen) != over || (err != nil) != over || kept && tt.limit.MaxKept == 0 {
					t.Errorf("sandbox %d: got error %v, want it refused by the limit: %t", i, err, over)
				}
			}
			_ = s.Close()
		})
	}
}
