package lifecycle_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// TestRaces checks that every counter is right after any concurrent operations.
func TestRaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const room = 3
		s := newStage(t, func(o *lifecycle.Options) { o.MaxSandboxes, o.MaxFrozen, o.MaxKept = room, room, room })
		s.fakes.SavesMemory = true
		hook := s.fakes.Hook
		s.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
			select {
			case <-time.After(rand.N(20 * time.Millisecond)): // fake time
			case <-ctx.Done():
				return ctx.Err()
			}
			return hook(ctx, id, op)
		}
		names := make([]string, 0, len(calls))
		for name := range calls {
			if name != "kill" {
				names = append(names, name)
			}
		}
		for range 40 {
			ids := []string{s.create(t, autoPause), s.create(t), s.create(t, dropMemory)}
			var work sync.WaitGroup
			for range 12 {
				work.Go(func() {
					for range 8 {
						<-time.After(rand.N(20 * time.Millisecond))
						calls[names[rand.N(len(names))]](t.Context(), s, ids[rand.N(len(ids))])
					}
				})
			}
			work.Go(func() { s.Advance(2 * time.Hour) })
			if rand.N(2) == 0 {
				work.Go(func() { _ = s.Kill(ids[0]) })
				work.Go(func() { s.fakes.Fake(ids[1]).Die(context.Canceled) })
			}
			work.Wait()
			for _, sb := range s.List(everything) { // also the children of forks
				_ = s.Kill(sb.ID)
			}
			synctest.Wait()
			if left := s.List(everything); len(left) != 0 {
				t.Fatalf("%+v are left, want none", left)
			}
			for _, id := range ids {
				if !s.fakes.Fake(id).Ended() {
					t.Errorf("%s still runs", id)
				}
			}
			// There is as much room as at the beginning.
			for _, drop := range []bool{false, true} {
				var again []string
				for range room {
					again = append(again, s.create(t))
				}
				for _, id := range again {
					s.pause(t, id, lifecycle.PauseOptions{DropMemory: drop})
				}
				for _, id := range again {
					if err := s.Kill(id); err != nil {
						t.Error(err)
					}
				}
			}
		}
		_ = s.Close()
	})
}
