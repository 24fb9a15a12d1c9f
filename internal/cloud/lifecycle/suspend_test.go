package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSuspends checks pauses of sandboxes whose engine keeps a home, and neither memory nor saved files.
func TestSuspends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no room in the cluster")
		var fail lifecycletest.Operation
		f := &lifecycletest.Fakes{
			Suspends: true, Lacks: map[engine.Feature]string{engine.Pauses: "it ends the pod", engine.SavedFiles: "they are on a node"},
			Hook: func(_ context.Context, _ string, op lifecycletest.Operation) error {
				if op == fail {
					return failure
				}
				return nil
			},
		}
		r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch, MaxSandboxes: 1, MaxKept: 1})
		defer end(t, r)
		made := create(t, r, time.Hour)
		fake := f.Fake(made.ID)
		for _, o := range []lifecycle.PauseOptions{{}, {DropMemory: true}} {
			must.Do(t, r.Pause(t.Context(), made.ID, o))
			sb, err := r.Get(made.ID)
			if err != nil || sb.State != lifecycle.Paused || sb.Memory || !fake.Paused() {
				t.Errorf("%+v: got %+v, %v, and the engine has paused it: %v", o, sb, err, fake.Paused())
			}
			autoPause := sb.AutoPause
			fail = lifecycletest.Resume
			_, err = r.Resume(t.Context(), made.ID, lifecycle.ResumeOptions{Lifetime: time.Hour})
			must.Is(t, err, failure)
			fail = ""
			sb, err = r.Resume(t.Context(), made.ID, lifecycle.ResumeOptions{Lifetime: time.Hour, AutoPause: new(!autoPause)})
			if err != nil || sb.State != lifecycle.Running || fake.Paused() || time.Until(sb.EndAt) != time.Hour {
				t.Errorf("%+v: resumed as %+v, %v", o, sb, err)
			}
			if got, err := r.Get(made.ID); err != nil || got.AutoPause == autoPause || sb.AutoPause == autoPause {
				t.Errorf("%+v: it keeps AutoPause %v, want the opposite, as requested (%v)", o, autoPause, err)
			}
		}
		fail = lifecycletest.Pause
		must.Is(t, r.Pause(t.Context(), made.ID, lifecycle.PauseOptions{}), failure)
		fail = ""
		if sb, err := r.Get(made.ID); err != nil || sb.State != lifecycle.Running {
			t.Errorf("after a pause that failed: %+v, %v", sb, err)
		}
		must.Do(t, r.Pause(t.Context(), made.ID, lifecycle.PauseOptions{}))

		second, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Minute, AutoPause: true, KeepMemory: true})
		must.Do(t, err) // the first one has given up its place
		if err := r.Pause(t.Context(), second.ID, lifecycle.PauseOptions{}); !isKeptLimit(err) {
			t.Errorf("one more than may be kept: %v", err)
		}
		must.Do(t, r.Kill(made.ID))
		if !fake.Ended() {
			t.Error("the engine still has a paused sandbox that was killed")
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if sb, err := r.Get(second.ID); err != nil || sb.State != lifecycle.Paused {
			t.Errorf("after its lifetime: %+v, %v", sb, err)
		}
		f.Fake(second.ID).Die(errors.New("its object was deleted"))
		synctest.Wait()
		if _, err := r.Get(second.ID); reasonOf(err) != lifecycle.Died {
			t.Errorf("a paused sandbox that its engine has lost: %v", err)
		}
	})
}

func isKeptLimit(err error) bool {
	_, ok := errors.AsType[*lifecycle.KeptLimitError](err)
	return ok
}

// TestRevivedBegins checks that a resume of a suspended sandbox begins another run of it, which is not longer than
// it may be, and that a pause whose record is not stored takes effect all the same.
func TestRevivedBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		c := &cluster{records: map[string]engine.Record{}, home: true}
		r := c.registry(t, func(o *lifecycle.Options) {
			o.MaxLifetime, o.Logger = time.Hour, slog.New(slog.NewTextHandler(&log, nil))
		})
		defer end(t, r)
		made := create(t, r, time.Hour)
		for asked, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, time.Hour: time.Hour, time.Hour + 1: time.Hour} {
			<-time.After(time.Second)
			must.Do(t, r.Pause(t.Context(), made.ID, lifecycle.PauseOptions{}))
			<-time.After(2 * time.Hour)
			got, err := r.Resume(t.Context(), made.ID, lifecycle.ResumeOptions{Lifetime: asked})
			must.Do(t, err)
			if record := c.records[made.ID]; !got.StartedAt.Equal(time.Now()) || got.EndAt.Sub(got.StartedAt) != want || !record.StartedAt.Equal(got.StartedAt) || !record.EndAt.Equal(got.EndAt) {
				t.Errorf("resumed for %v: it runs from %v to %v, and in its record from %v to %v, want %v from now", asked, got.StartedAt, got.EndAt, record.StartedAt, record.EndAt, want)
			}
		}
		c.fail = errors.New("the API server is gone")
		must.Do(t, r.Pause(t.Context(), made.ID, lifecycle.PauseOptions{}))
		if got, err := r.Get(made.ID); err != nil || got.State != lifecycle.Paused {
			t.Errorf("a pause that is not stored: got %+v, %v", got, err)
		}
		want := fmt.Sprintf(`level=WARN msg="the time of a pause could not be stored" sandbox=%s error="lifecycle: the record of sandbox %[1]s cannot be stored: the API server is gone"`, made.ID)
		if got := log.String(); strings.Count(got, want) != 1 {
			t.Errorf("logged %s, want %s", got, want)
		}
		c.fail = nil
	})
}

// TestPausedIsAdopted checks that a paused sandbox outlives its registry, and that another registry sees
// each pause and resume.
func TestPausedIsAdopted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}, home: true}
		a := c.registry(t)
		sb, err := a.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, AutoPause: true})
		must.Do(t, err)
		if r := c.records[sb.ID]; r.Paused || r.Linger == 0 {
			t.Errorf("the record of a running sandbox is %+v", r)
		}
		must.Do(t, a.Pause(t.Context(), sb.ID, lifecycle.PauseOptions{}))
		paused := c.records[sb.ID]
		if !paused.Paused || paused.Linger != 0 || !paused.EndAt.Equal(time.Now()) {
			t.Errorf("the record of a paused sandbox is %+v", paused)
		}
		must.Do(t, end(t, a))

		a = c.registry(t)
		defer end(t, a)
		b := c.registry(t)
		defer end(t, b)
		both := map[string]*lifecycle.Registry{"the one that resumes it": a, "the other": b}
		are := func(when string, want lifecycle.State, running int) {
			t.Helper()
			synctest.Wait()
			for name, r := range both {
				got, err := r.Get(sb.ID)
				if err != nil || got.State != want || got.Memory || !got.EndAt.Equal(c.records[sb.ID].EndAt) {
					t.Errorf("%s, %s: got %+v, %v", when, name, got, err)
				}
				if have, _ := r.Count(); have != running {
					t.Errorf("%s, %s: %d run, want %d", when, name, have, running)
				}
			}
		}
		<-time.After(2 * time.Hour)
		are("long after its pause", lifecycle.Paused, 0)
		_, resumed, err := a.Connect(t.Context(), sb.ID, lifecycle.ResumeOptions{Lifetime: time.Hour})
		if err != nil || !resumed {
			t.Errorf("connect: resumed %v, %v", resumed, err)
		}
		are("after its resume", lifecycle.Running, 1)
		if _, err := b.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour}); !isLimit(err) {
			t.Errorf("a sandbox that the other resumed has no place: %v", err)
		}
		must.Do(t, b.Pause(t.Context(), sb.ID, lifecycle.PauseOptions{}))
		are("after its second pause", lifecycle.Paused, 0)
		for _, box := range c.boxes[2:3] { // of b
			if len(box.follows) != 1 || box.follows[0] {
				t.Errorf("the instance of the other was told %v", box.follows)
			}
		}
		c.fail = errors.New("the API server is gone")
		_, err = a.Resume(t.Context(), sb.ID, lifecycle.ResumeOptions{Lifetime: time.Hour})
		must.Is(t, err, c.fail)
		c.fail = nil
		are("after a resume whose record is not stored", lifecycle.Paused, 0)
		must.Do(t, b.Kill(sb.ID))
		synctest.Wait()
		if _, err := a.Get(sb.ID); reasonOf(err) != lifecycle.Killed {
			t.Errorf("a paused sandbox that the other has killed: %v, want that it was killed", err)
		}
	})
}
