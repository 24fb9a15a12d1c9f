package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCloseOfStoreThatIsNotDurable checks that a closing registry saves no sandboxes if its store
// ends with it.
func TestCloseOfStoreThatIsNotDurable(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	hook := s.fakes.Hook
	closing := make(chan lifecycletest.Operation, 100)
	s.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
		closing <- op
		return hook(ctx, id, op)
	}
	s.create(t, autoPause)
	must.Do(t, s.Close())
	close(closing)
	var done []lifecycletest.Operation
	for op := range closing {
		done = append(done, op)
	}
	for _, unwanted := range []lifecycletest.Operation{lifecycletest.Pause, lifecycletest.Save, lifecycletest.SaveMemory, lifecycletest.Checkpoint} {
		if slices.Contains(done, unwanted) {
			t.Errorf("it did %q, want no %q", done, unwanted)
		}
	}
}

// TestLifetimeIsOverDuringClose checks that the evictor does nothing for a lifetime that is over
// while the registry closes. Close itself pauses the sandboxes with AutoPause, a few at a time.
func TestLifetimeIsOverDuringClose(t *testing.T) {
	t.Parallel()
	v := serve(t, t.TempDir())
	hook := v.fakes.Hook
	var saves atomic.Int64
	few, many := make(chan struct{}), make(chan struct{})
	v.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
		if op == lifecycletest.Save {
			switch saves.Add(1) {
			case 2:
				close(few)
			case 3:
				close(many)
			}
		}
		return hook(ctx, id, op)
	}
	for range 3 {
		v.create(t, autoPause)
	}
	release := v.hold(lifecycletest.Save)
	ended := make(chan error, 1)
	go func() { ended <- v.Close() }()
	<-few
	over := make(chan struct{})
	go func() { defer close(over); v.Advance(2 * time.Hour) }()
	select {
	case <-over:
	case <-many:
		t.Error("3 sandboxes are saved at once, want 2 at most")
	}
	release()
	<-over
	if err := errors.Join(<-ended, v.store.Close()); err != nil {
		t.Error(err)
	}
}

// TestCloseDuringCreate checks that a sandbox that starts while its registry is closed ends at once.
func TestCloseDuringCreate(t *testing.T) {
	t.Parallel()
	f := &lifecycletest.Fakes{}
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch})
	f.Before = func(context.Context) { must.Do(t, r.Close()) }
	sb, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour})
	if !errors.Is(err, lifecycle.ErrClosed) || sb.ID != "" {
		t.Errorf("got sandbox %q and error %v, want ErrClosed", sb.ID, err)
	}
	if running, paused := r.Count(); running+paused != 0 {
		t.Errorf("%d sandboxes run and %d are paused, want none", running, paused)
	}
	for _, id := range f.IDs() {
		if !f.Fake(id).Ended() {
			t.Errorf("sandbox %s was not ended", id)
		}
	}
	if len(f.IDs()) != 1 {
		t.Errorf("%d sandboxes were started, want 1", len(f.IDs()))
	}
}

// TestWhileClosing checks what calls return while the registry closes.
func TestWhileClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		release := s.hold(lifecycletest.Close)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		for name, call := range map[string]func() error{
			"a lifetime": func() error { return s.SetLifetime(id, time.Hour) },
			"a kill":     func() error { return s.Kill(id) },
			"a pause":    func() error { return s.Pause(t.Context(), id, lifecycle.PauseOptions{}) },
		} {
			if err := call(); !errors.Is(err, lifecycle.ErrClosed) {
				t.Errorf("%s: got error %v, want ErrClosed", name, err)
			}
		}
		if _, err := s.Get(id); !isNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
		release()
		must.Do(t, <-closed)
	})
}

// TestCloseBoundsPauses checks that a pause that does not end does not keep the registry from closing,
// and that one that suspends is not paused, because its home would end.
func TestCloseBoundsPauses(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		v := serve(t, dirs[0])
		id := v.create(t)
		v.hold(lifecycletest.Save)
		go func() { _ = v.Pause(t.Context(), id, lifecycle.PauseOptions{}) }()
		synctest.Wait()
		begun := time.Now()
		v.end(t)
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it took %v, want a minute", took)
		}

		v = serve(t, dirs[1])
		v.fakes.Suspends = true
		v.fail(lifecycletest.Pause, errors.New("paused"))
		v.create(t, autoPause)
		v.end(t)
		if log := v.log.String(); strings.Contains(log, "not paused") {
			t.Errorf("a sandbox that suspends was to be paused: %s", log)
		}
	})
}

// TestCloseSavesEach checks that a closing registry pauses each sandbox, although only a few are paused at
// once, and does not wait for anything else.
func TestCloseSavesEach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := serve(t, dir)
		var ids []string
		for range 5 {
			ids = append(ids, v.create(t, autoPause))
		}
		begun := time.Now()
		v.end(t)
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %v, want no wait", took)
		}
		next := serve(t, dir)
		for _, id := range ids {
			if sb, err := next.Get(id); err != nil || sb.State != lifecycle.Paused {
				t.Errorf("the next server has %v with error %v, want it paused", sb.State, err)
			}
		}
		next.end(t)
	})
}

// TestCloseDuringKill checks that a sandbox that is being killed while the registry closes ends once, and
// because it was killed.
func TestCloseDuringKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		release := s.hold(lifecycletest.Close)
		killed, closed := make(chan error, 1), make(chan error, 1)
		go func() { killed <- s.Kill(id) }()
		synctest.Wait()
		go func() { closed <- s.Registry.Close() }()
		synctest.Wait()
		release()
		must.Do(t, errors.Join(<-killed, <-closed))
		must.Do(t, s.Close()) // counts the reported ends
		if _, err := s.Get(id); reasonOf(err) != lifecycle.Killed {
			t.Errorf("got error %v, want that it was killed", err)
		}
	})
}

// TestCloseAwaitsKills checks that a registry closes only after the end of a sandbox that is being killed was reported.
func TestCloseAwaitsKills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported := make(chan struct{})
		r := lifecycle.New(lifecycle.Options{
			Store: store.Temporary(t.TempDir()), Launch: (&lifecycletest.Fakes{}).Launch, Ended: func(string) { <-reported },
		})
		sb := create(t, r, time.Hour)
		killed, closed := make(chan error, 1), make(chan error, 1)
		go func() { killed <- r.Kill(sb.ID) }()
		synctest.Wait()
		go func() { closed <- r.Close() }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("the registry has closed, and the end of the sandbox is not reported")
		}
		close(reported)
		must.Do(t, errors.Join(<-killed, <-closed))
	})
}

// TestCloseLeavesNoDead checks that a sandbox that can outlive its registry, and that dies while the registry
// closes, does not go on.
func TestCloseLeavesNoDead(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{records: map[string]engine.Record{}}
			r := c.registry(t)
			sb := create(t, r, time.Hour)
			synctest.Wait() // the registry has seen the first record
			release := make(chan struct{})
			c.boxes[0].hold(release)
			resized := make(chan error, 1)
			go func() { resized <- r.Resize(t.Context(), sb.ID, engine.Resources{CPUs: 2}) }()
			synctest.Wait()
			if dies {
				c.boxes[0].Die(errors.New("its pod was lost"))
			}
			closed := make(chan error, 1)
			go func() { closed <- end(t, r) }()
			synctest.Wait()
			close(release)
			<-resized // it is cut off
			must.Do(t, <-closed)
			if goes := len(c.records) == 1; goes == dies {
				t.Errorf("it dies, %v: it goes on: %v", dies, goes)
			}
		})
	}
}
