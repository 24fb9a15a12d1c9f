package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/must"
)

const idleLimit = 10 * time.Second

func idle(q *lifecycle.Request) { q.Idle, q.Lifetime = idleLimit, time.Hour }

// TestIdle checks that a sandbox ends when nothing has used it for its idle limit, that each use begins
// the limit anew, and that calls that are no use do not.
func TestIdle(t *testing.T) {
	t.Parallel()
	const part = 6 * time.Second // two parts are longer than the limit
	for name, tt := range map[string]struct {
		between func(s *stage, id string) error
		lives   bool
	}{
		"nothing": {func(*stage, string) error { return nil }, false},
		"a request or byte": {func(s *stage, id string) error {
			s.fakes.Spec(id).Use.Note()
			return nil
		}, true},
		"get and list":   {func(s *stage, id string) error { s.List(everything); _, err := s.Get(id); return err }, false},
		"a new lifetime": {func(s *stage, id string) error { return s.SetLifetime(id, 2*time.Hour) }, false},
		"a refresh":      {func(s *stage, id string) error { return s.Extend(id, 2*time.Hour) }, false},
		"a connect": {func(s *stage, id string) error {
			_, _, err := s.Connect(s.t.Context(), id, lifecycle.ResumeOptions{Lifetime: time.Hour})
			return err
		}, true},
		"a pause and a resume": {func(s *stage, id string) error {
			if err := s.Pause(s.t.Context(), id, lifecycle.PauseOptions{}); err != nil {
				return err
			}
			s.Advance(time.Minute) // a paused sandbox has no idle limit
			_, err := s.Resume(s.t.Context(), id, lifecycle.ResumeOptions{Lifetime: time.Hour})
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t, idle)
				time.Sleep(part) //nolint:forbidigo // its time is fake: the evictor wakes at the limit
				must.Do(t, tt.between(s, id))
				time.Sleep(part) //nolint:forbidigo // its time is fake
				synctest.Wait()
				_, err := s.Get(id)
				if tt.lives {
					must.Do(t, err)
					time.Sleep(part) //nolint:forbidigo // its time is fake
					synctest.Wait()
					_, err = s.Get(id)
				}
				gone, ok := errors.AsType[*lifecycle.NotFoundError](err)
				if !ok || gone.Reason != lifecycle.Idle || !strings.Contains(gone.How, "10s") {
					t.Errorf("got %v, want that it ended because nothing used it", err)
				}
			})
		})
	}
}

// TestIdleBusy checks that a sandbox that is busy, or does not answer, lives on, and ends as soon as it
// has not been busy for its limit.
func TestIdleBusy(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"busy": lifecycletest.ErrBusy, "silent": errors.New("silent")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.fail(lifecycletest.Busy, err)
				id := s.create(t, idle)
				for range 3 {
					s.Advance(idleLimit)
					s.get(t, id)
				}
				s.fail(lifecycletest.Busy, nil)
				s.Advance(idleLimit - time.Second)
				s.get(t, id)
				s.Advance(time.Second)
				if _, err := s.Get(id); err == nil {
					t.Error("it lives, want that it ended")
				}
			})
		})
	}
}

// TestIdlePause checks that a sandbox with AutoPause is paused at its idle limit, that a pause that
// failed is tried again, and that the lifetime stays as it was.
func TestIdlePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t, idle, autoPause)
		end := s.get(t, id).EndAt
		s.fail(lifecycletest.Pause, errors.New("no room"))
		s.Advance(idleLimit)
		if sb := s.get(t, id); sb.State != lifecycle.Running || !sb.EndAt.Equal(end) {
			t.Errorf("got %v until %v, want running until %v", sb.State, sb.EndAt, end)
		}
		s.fail(lifecycletest.Pause, nil)
		s.Advance(idleLimit)
		if sb := s.get(t, id); sb.State != lifecycle.Paused {
			t.Errorf("got %v, want paused", sb.State)
		}
	})
}

// TestIdleAfterRestart checks that a paused sandbox keeps its idle limit over a restart, however it was
// paused, that the limit begins anew with its resume, and that uses of the sandbox then count.
func TestIdleAfterRestart(t *testing.T) {
	t.Parallel()
	const limit, most = time.Hour, 50 * time.Minute // real time passes, too
	for name, before := range map[string]func(t *testing.T, v *server, id string){
		"by request":               pauseFull,
		"by request, no memory":    pauseFiles,
		"by its idle limit":        func(_ *testing.T, v *server, _ string) { v.Advance(limit) },
		"by the end of the server": func(*testing.T, *server, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			v := serve(t, dir)
			id := v.create(t, autoPause, func(q *lifecycle.Request) { q.Idle, q.Lifetime = limit, 24*limit })
			v.Advance(most)
			before(t, v, id)
			v.end(t)
			next := serve(t, dir)
			defer next.end(t)
			is := func(want lifecycle.State, after string) {
				t.Helper()
				if sb := next.get(t, id); sb.State != want || sb.Idle != limit {
					t.Fatalf("after %s it is %v with the limit %v, want %v with %v", after, sb.State, sb.Idle, want, limit)
				}
			}
			next.Advance(2 * limit)
			is(lifecycle.Paused, "the restart")
			_, _, err := next.Connect(t.Context(), id, lifecycle.ResumeOptions{Lifetime: 24 * limit})
			must.Do(t, err)
			next.Advance(most)
			is(lifecycle.Running, "most of its limit")
			next.fakes.Spec(id).Use.Note()
			next.Advance(most)
			is(lifecycle.Running, "a use and most of its limit")
			next.Advance(limit - most)
			is(lifecycle.Paused, "its limit")
		})
	}
}

// TestIdleAnswerIsLate checks that the answer of a sandbox whether it is busy has no effect once the
// sandbox no longer runs.
func TestIdleAnswerIsLate(t *testing.T) {
	t.Parallel()
	for name, died := range map[string]bool{"paused": false, "died": true} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			v := serve(t, dir)
			id := v.create(t, idle)
			release := v.hold(lifecycletest.Busy)
			go v.Advance(idleLimit)
			synctest.Wait()
			if died {
				v.fail(lifecycletest.Busy, errors.New("gone"))
				v.fakes.Fake(id).Die(errors.New("broken"))
			} else {
				v.pause(t, id, lifecycle.PauseOptions{})
			}
			synctest.Wait()
			release()
			synctest.Wait()
			if sb, err := v.Get(id); died != (reasonOf(err) == lifecycle.Died) || !died && (err != nil || sb.State != lifecycle.Paused) {
				t.Errorf("%s: got %v and error %v", name, sb.State, err)
			}
			if strings.Contains(v.log.String(), "did not answer") {
				t.Errorf("%s: logged %s", name, v.log.String())
			}
			v.end(t)
		})
	}
}
