package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEventsOfALife checks the events of a sandbox whose lifetime and network change and that is killed.
func TestEventsOfALife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		began := time.Now().UTC()
		must.Do(t, s.SetLifetime(id, 2*time.Hour))
		must.Do(t, s.Extend(id, 3*time.Hour)) // clients do this every few seconds
		must.Do(t, s.SetEgress(id, lifecycle.Network{}, nil))
		must.Do(t, s.Kill(id))
		got, _ := s.Events().Latest(func(*lifecycle.Event) bool { return true }, 0, 9, true)
		want := []lifecycle.Event{
			{Type: lifecycle.EventCreated}, {Type: lifecycle.EventUpdated, Message: "lifetime", EndAt: began.Add(2 * time.Hour)},
			{Type: lifecycle.EventUpdated, Message: "network"},
			{Type: lifecycle.EventKilled, Reason: lifecycle.Killed, Message: "it was killed by request"},
		}
		for i := range want {
			want[i].Number, want[i].At, want[i].Started, want[i].Sandbox, want[i].Template = int64(i+1), began, began, id, base.ID
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the events (-want +got):\n%s", diff)
		}
		_ = s.Close()
	})
}

// TestEndIsTold checks that a caller whose sandbox ends meanwhile learns when and why it ended.
func TestEndIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		release := s.hold(lifecycletest.Resize)
		resized := make(chan error, 1)
		go func() { resized <- s.Resize(t.Context(), id, engine.Resources{CPUs: 2}) }()
		<-time.After(time.Minute)
		s.fail(lifecycletest.Resize, errors.New("no answer"))
		s.fakes.Fake(id).Die(errors.New("no envd"))
		release()
		err := <-resized
		want := &lifecycle.NotFoundError{ID: id, Reason: lifecycle.Died, EndedAt: time.Now().UTC(), How: "it died: no envd"}
		gone, _ := errors.AsType[*lifecycle.NotFoundError](err)
		if diff := cmp.Diff(want, gone); diff != "" {
			t.Errorf("got %v (-want +got):\n%s", err, diff)
		}
		_ = s.Close()
	})
}

// TestIdleAfterBusy checks that a sandbox which was busy at its idle limit ends at the next one, although nobody calls
// the registry.
func TestIdleAfterBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.fail(lifecycletest.Busy, lifecycletest.ErrBusy)
		id := s.create(t, idle)
		<-time.After(idleLimit + time.Second)
		synctest.Wait()
		s.fail(lifecycletest.Busy, nil)
		<-time.After(idleLimit - 2*time.Second)
		if s.fakes.Fake(id).Ended() {
			t.Error("it ended before its next idle limit")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !s.fakes.Fake(id).Ended() {
			t.Error("it lives after its next idle limit")
		}
		_ = s.Close()
	})
}

// TestReaderOfEventsWaits checks that a reader waits for the next event after it has read all, and that cancelling ends the wait.
func TestReaderOfEventsWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		all := func(*lifecycle.Event) bool { return true }
		got := make(chan []lifecycle.Event, 1)
		go func() {
			page, next, missed := s.Events().After(t.Context(), 1, all, 9)
			if next != 2 || missed != 0 {
				t.Errorf("got the next number %d and %d missed", next, missed)
			}
			got <- page
		}()
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("the reader did not wait")
		}
		must.Do(t, s.SetLifetime(id, time.Hour))
		if page := <-got; len(page) != 1 || page[0].Type != lifecycle.EventUpdated {
			t.Errorf("got %+v, want the new event", page)
		}
		_ = s.Close()
	})
}

// TestFailedKillIsTold checks the events of a sandbox whose files cannot be removed: it is killed, and then
// paused again, with the reason.
func TestFailedKillIsTold(t *testing.T) {
	t.Parallel()
	v := serve(t, t.TempDir())
	id := v.create(t)
	pauseFull(t, v, id)
	v.store.Wait()
	storetest.FailNth(v.store, 1)
	must.Is(t, v.Kill(id), storetest.ErrFault)
	storetest.Mend(v.store)
	got, _ := v.Events().Latest(func(*lifecycle.Event) bool { return true }, 0, 2, false)
	if len(got) != 2 {
		t.Fatalf("got the events %+v, want two", got)
	}
	paused, killed := got[0], got[1]
	if killed.Type != lifecycle.EventKilled || killed.Reason != lifecycle.Killed {
		t.Errorf("got the event %+v, want that it was killed", killed)
	}
	if paused.Type != lifecycle.EventPaused || paused.Reason != lifecycle.Killed || !strings.Contains(paused.Message, storetest.ErrFault.Error()) {
		t.Errorf("got the event %+v, want that it is paused again, and why", paused)
	}
	v.end(t)
}

// TestCheckpointsAreTold checks that a snapshot and a fork are events of their sandbox, and that a snapshot
// that fails is not.
func TestCheckpointsAreTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	id := s.create(t)
	checkpoints := func() []lifecycle.Event {
		page, _ := s.Events().Latest(func(e *lifecycle.Event) bool { return e.Type == lifecycle.EventCheckpointed && e.Sandbox == id }, 0, 9, true)
		return page
	}
	s.fail(lifecycletest.Checkpoint, errors.New("disk full"))
	for want, call := range []string{"snapshot", "snapshot", "fork"} {
		calls[call](t.Context(), s, id)
		if got := checkpoints(); len(got) != want {
			t.Errorf("after a %s: got the events %+v, want %d", call, got, want)
		}
		s.fail(lifecycletest.Checkpoint, nil)
	}
	_ = s.Close()
}
