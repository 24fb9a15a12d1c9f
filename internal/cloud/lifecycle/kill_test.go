package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// TestKillWaits checks that a kill waits for the end of the transition that it cancels. No instance
// is closed while it is being paused, resumed or saved.
func TestKillWaits(t *testing.T) {
	t.Parallel()
	for state, op := range map[string]lifecycletest.Operation{
		"pausing": lifecycletest.Pause, "resuming": lifecycletest.Resume, "snapshotting": lifecycletest.Checkpoint,
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t)
				ending := make(chan struct{})
				under, closed := false, 0
				hook := s.fakes.Hook
				s.fakes.Hook = func(ctx context.Context, id string, now lifecycletest.Operation) error {
					err := hook(ctx, id, now)
					switch {
					case now == lifecycletest.Close:
						if closed++; under {
							t.Errorf("it is closed while %s", state)
						}
					case now == op && ctx.Err() != nil: // an engine takes its time to stop
						under = true
						<-ending
						under = false
					}
					return err
				}
				s.bring(t, id, state)
				killed := make(chan error, 1)
				go func() { killed <- s.Kill(id) }()
				synctest.Wait()
				if !under || len(killed) != 0 {
					t.Errorf("under way: %v; %d kills have returned, want none", under, len(killed))
				}
				close(ending)
				if err := <-killed; err != nil || closed != 1 {
					t.Errorf("got %v, closed %d times, want once", err, closed)
				}
				if _, err := s.Get(id); outcome("", err) != "gone "+string(lifecycle.Killed) {
					t.Errorf("afterwards: %v, want it to be killed", err)
				}
				_ = s.Close()
			})
		})
	}
}
