package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// TestDeathIsKnownAtOnce checks that the registry knows the reason for a sandbox's end as soon as
// the engine knows it, even while the sandbox is still being removed.
func TestDeathIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"get": "gone died", "connect": "refused killing", "resume": "gone died", "pause": "gone died", "network": "gone died",
		"timeout": "refused killing", "snapshot": "gone died", "fork": "gone died", "wake": "asleep", "kill": "gone died",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t)
				release := s.hold(lifecycletest.Close)
				s.fakes.Fake(id).Die(errors.New("no envd"))
				// Without waiting for the registry's own watcher.
				if got := calls[call](t.Context(), s, id); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if all := s.List(everything); len(all) != 0 {
					t.Errorf("%d sandboxes are listed, want none", len(all))
				}
				release()
				_ = s.Close()
			})
		})
	}
}

// TestDeathInTransition checks that a transition returns the reason if its sandbox ends meanwhile.
// A call that waits for the transition returns it, too.
func TestDeathInTransition(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state, call string
		held        lifecycletest.Operation
	}{
		{"pausing", "pause", lifecycletest.Pause},
		{"pausing to files", "pause to files", lifecycletest.Save},
		{"snapshotting", "snapshot", lifecycletest.Checkpoint},
		{"forking", "fork", lifecycletest.Checkpoint},
		{"resuming", "connect", lifecycletest.Resume},
	} {
		t.Run(tt.state, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t)
				if tt.call == "connect" {
					s.pause(t, id, lifecycle.PauseOptions{})
				}
				release := s.hold(tt.held)
				got, asked := make(chan string, 1), make(chan error, 1)
				go func() { got <- calls[tt.call](t.Context(), s, id) }()
				synctest.Wait()
				s.fail(tt.held, errors.New("it broke"))
				s.fakes.Fake(id).Die(errors.New("no envd"))
				go func() { _, err := s.Get(id); asked <- err }()
				synctest.Wait()
				release()
				if got := <-got; got != "gone died" {
					t.Errorf("%s: got %s, want gone died", tt.call, got)
				}
				if err := <-asked; outcome("", err) != "gone died" || !strings.Contains(err.Error(), "it died: no envd") {
					t.Errorf("get: %v, want why it died", err)
				}
				_ = s.Close()
			})
		})
	}
}

// TestDeathAfterAFailure checks an operation whose failure is the first sign of the sandbox's end:
// it waits until the engine knows the reason, and returns the reason.
func TestDeathAfterAFailure(t *testing.T) {
	t.Parallel()
	for call, op := range map[string]lifecycletest.Operation{
		"pause": lifecycletest.Pause, "pause to files": lifecycletest.Save, "snapshot": lifecycletest.Checkpoint, "fork": lifecycletest.Save,
	} {
		s := newStage(t)
		var failed atomic.Bool
		usual := s.fakes.Hook
		s.fakes.Hook = func(ctx context.Context, id string, now lifecycletest.Operation) error {
			switch {
			case now == op:
				failed.Store(true)
				return errors.New("connection reset")
			case now == lifecycletest.Healthy && failed.Load():
				s.fakes.Fake(id).Die(errors.New("no envd"))
			}
			return usual(ctx, id, now)
		}
		if got := calls[call](t.Context(), s, s.create(t)); got != "gone died" {
			t.Errorf("%s: got %s, want gone died", call, got)
		}
		_ = s.Close()
	}
}

// TestDeathOfPauseWithoutRoom checks the reason for the end of a sandbox that cannot be kept for
// lack of room and cannot continue: it names both.
func TestDeathOfPauseWithoutRoom(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *lifecycle.Options) { o.MaxKept = 1 })
	s.pause(t, s.create(t), lifecycle.PauseOptions{DropMemory: true})
	id := s.create(t)
	s.fail(lifecycletest.Resume, errors.New("stuck"))
	err := s.Pause(t.Context(), id, lifecycle.PauseOptions{DropMemory: true})
	if gone, ok := errors.AsType[*lifecycle.NotFoundError](err); !ok || gone.Reason != lifecycle.Died || !strings.Contains(gone.How, "which is the limit; it cannot run on: stuck") {
		t.Errorf("got error %v, want that it died of both", err)
	}
}

// TestDeathOfPause checks the reason for the end of a sandbox that can neither be paused nor
// continue: the error of the pause, shortened.
func TestDeathOfPause(t *testing.T) {
	t.Parallel()
	for _, long := range []bool{false, true} {
		why := "disk full"
		if long {
			why = strings.Repeat("disk full, ", 100)
		}
		s := newStage(t)
		id := s.create(t)
		s.fail(lifecycletest.Save, errors.New(why))
		s.fail(lifecycletest.Resume, errors.New("stuck"))
		err := s.Pause(t.Context(), id, lifecycle.PauseOptions{DropMemory: true})
		gone, ok := errors.AsType[*lifecycle.NotFoundError](err)
		if !ok || gone.Reason != lifecycle.Died || !strings.HasPrefix(gone.How, "it died: disk full") {
			t.Errorf("got error %v, want that it died of %.20s", err, why)
		} else if len(gone.How) > 300+len("…") || !long && gone.How != "it died: "+why {
			t.Errorf("got %q, want the cause alone, in few words", gone.How)
		}
		_ = s.Close()
	}
}

// TestDeathOfResumed checks that a resumed sandbox that ends during a snapshot is paused in its
// earlier state, and that the error of the snapshot reports both.
func TestDeathOfResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		s.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
		if _, _, err := s.Connect(t.Context(), id, day); err != nil {
			t.Fatal(err)
		}
		release, clean := s.hold(lifecycletest.Checkpoint), s.hold(lifecycletest.Close)
		failed := make(chan error, 1)
		go func() { _, err := s.Snapshot(t.Context(), id, nil); failed <- err }()
		synctest.Wait()
		s.fakes.Fake(id).Die(errors.New("no envd"))
		release()
		err := <-failed
		if outcome("", err) != "gone died" || !strings.Contains(err.Error(), "it died: no envd, and is paused as it was at its latest pause") {
			t.Errorf("snapshot: %v, want why it died, and that it is paused", err)
		}
		if got := calls["get"](t.Context(), s, id); got != "pausing" {
			t.Errorf("while it is cleaned up: got %s, want pausing", got)
		}
		clean()
		synctest.Wait()
		if got := calls["get"](t.Context(), s, id); got != "paused" {
			t.Errorf("got %s, want paused", got)
		}
		_ = s.Close()
	})
}
