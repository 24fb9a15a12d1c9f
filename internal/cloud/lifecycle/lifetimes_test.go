package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// lives contains the calls that set a sandbox's lifetime, keyed by name. Each call returns the
// sandbox's record.
var lives = map[string]func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error){
	"create": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		return s.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: lifetime})
	},
	"set": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		id := s.create(t)
		err := s.SetLifetime(id, lifetime)
		return s.get(t, id), err
	},
	"extend": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		id := s.create(t)
		err := s.Extend(id, lifetime)
		return s.get(t, id), err
	},
	"connect": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		sb, _, err := s.Connect(t.Context(), s.create(t), lifecycle.ResumeOptions{Lifetime: lifetime})
		return sb, err
	},
	"connect to a paused one": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		id := s.create(t)
		s.pause(t, id, lifecycle.PauseOptions{})
		sb, _, err := s.Connect(t.Context(), id, lifecycle.ResumeOptions{Lifetime: lifetime})
		return sb, err
	},
	"resume": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		id := s.create(t)
		s.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
		return s.Resume(t.Context(), id, lifecycle.ResumeOptions{Lifetime: lifetime})
	},
	"fork": func(t *testing.T, s *stage, lifetime time.Duration) (lifecycle.Sandbox, error) {
		forks, err := s.Fork(t.Context(), s.create(t), 1, lifetime, nil)
		if err != nil {
			return lifecycle.Sandbox{}, err
		}
		return forks[0].Sandbox, forks[0].Err
	},
}

// TestLifetimes checks that each call sets the requested lifetime, but at most the longest
// lifetime. Calls that only extend a lifetime do not shorten the sandbox's hour.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	const longest = 3 * time.Hour
	for name, live := range lives {
		for _, asked := range []time.Duration{time.Second, 2 * time.Hour, longest - 1, longest, longest + 1} {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, func(o *lifecycle.Options) { o.MaxLifetime = longest })
				sb, err := live(t, s, asked)
				want := min(asked, longest)
				if name == "extend" || name == "connect" {
					want = max(want, time.Hour)
				}
				if got := time.Until(sb.EndAt); err != nil || got != want {
					t.Errorf("%s for %v: got %v and error %v, want %v", name, asked, got, err, want)
				}
				if got := s.get(t, sb.ID); !got.EndAt.Equal(sb.EndAt) {
					t.Errorf("%s for %v: the record ends at %v, want %v as was told", name, asked, got.EndAt, sb.EndAt)
				}
				<-time.After(want - 1)
				synctest.Wait()
				if got := calls["get"](t.Context(), s, sb.ID); got != "running" {
					t.Errorf("%s for %v: got %s just before its end, want running", name, asked, got)
				}
				<-time.After(1)
				synctest.Wait()
				if got := calls["get"](t.Context(), s, sb.ID); got != "gone expired" && got != "paused" {
					t.Errorf("%s for %v: got %s at its end, want it over", name, asked, got)
				}
				_ = s.Close()
			})
		}
	}
}

// TestRetriesOfAPause checks that a failed pause at the end of a lifetime is repeated every minute
// for ten minutes. After a new lifetime, the ten minutes begin again.
func TestRetriesOfAPause(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(t *testing.T, s *stage, id string){
		"never": nil,
		"set": func(t *testing.T, s *stage, id string) {
			if err := s.SetLifetime(id, time.Hour); err != nil {
				t.Error(err)
			}
		},
		"extended": func(t *testing.T, s *stage, id string) {
			if err := s.Extend(id, time.Hour); err != nil {
				t.Error(err)
			}
		},
		"connected": func(t *testing.T, s *stage, id string) {
			if _, _, err := s.Connect(t.Context(), id, day); err != nil {
				t.Error(err)
			}
		},
		"paused and resumed": func(t *testing.T, s *stage, id string) {
			s.fail(lifecycletest.Pause, nil)
			s.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
			if _, err := s.Resume(t.Context(), id, day); err != nil {
				t.Error(err)
			}
			s.fail(lifecycletest.Pause, errors.New("disk full"))
		},
		"as it was at its latest pause, and resumed": func(t *testing.T, s *stage, id string) {
			s.fakes.Fake(id).Die(errors.New("broken"))
			synctest.Wait()
			if _, err := s.Resume(t.Context(), id, day); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				var tries atomic.Int64
				hook := s.fakes.Hook
				s.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
					err := hook(ctx, id, op)
					if op == lifecycletest.Pause && err != nil {
						tries.Add(1)
					}
					return err
				}
				id := s.create(t, autoPause)
				s.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
				if _, err := s.Resume(t.Context(), id, day); err != nil {
					t.Fatal(err)
				}
				s.fail(lifecycletest.Pause, errors.New("disk full"))
				if again != nil {
					<-time.After(time.Hour + 3*time.Minute)
					synctest.Wait()
					if tries.Load() != 4 {
						t.Errorf("got %d tries in three minutes, want 4", tries.Load())
					}
					again(t, s, id)
					tries.Store(0)
				}
				<-time.After(time.Hour + 10*time.Minute - 1)
				synctest.Wait()
				if got := calls["get"](t.Context(), s, id); got != "running" || tries.Load() != 10 {
					t.Errorf("got it %s after %d tries, want it to run until ten minutes are over", got, tries.Load())
				}
				<-time.After(1)
				synctest.Wait()
				if got := calls["get"](t.Context(), s, id); got != "paused" || tries.Load() != 10 {
					t.Errorf("got it %s after %d tries, want it ended, and so paused as it was", got, tries.Load())
				}
				_ = s.Close()
			})
		})
	}
}

// TestResumeDeadline checks that a resume that takes too long ends for all its callers, and that
// the sandbox stays paused.
func TestResumeDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *lifecycle.Options) { o.MaxSandboxes = 1 })
		id := s.create(t)
		s.pause(t, id, lifecycle.PauseOptions{})
		release := s.hold(lifecycletest.Resume)
		begun := time.Now()
		_, err := s.Resume(t.Context(), id, day)
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != 70*time.Second {
			t.Errorf("got error %v after %v, want that it took too long after 70s", err, took)
		}
		if got := calls["get"](t.Context(), s, id); got != "paused" {
			t.Errorf("got it %s, want paused", got)
		}
		release()
		if _, err := s.Resume(t.Context(), id, day); err != nil {
			t.Errorf("again: %v", err)
		}
		_ = s.Close()
	})
}
