package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/must"
)

func autoPause(q *lifecycle.Request) { q.AutoPause = true }

func dropMemory(q *lifecycle.Request) { q.AutoPause, q.KeepMemory, q.AutoResume = true, false, false }

func (s *stage) get(t *testing.T, id string) lifecycle.Sandbox {
	t.Helper()
	sb, err := s.Get(id)
	must.Do(t, err)
	return sb
}

// TestAutoPause checks that a pause at the end of a lifetime keeps the memory and files as
// requested, or as far as possible.
func TestAutoPause(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*lifecycle.Request)
		before func(*stage, *lifecycletest.Fake)
		memory bool
	}{
		"with memory":    {autoPause, nil, true},
		"without memory": {dropMemory, nil, false},
		"with too much memory": {autoPause, func(_ *stage, f *lifecycletest.Fake) {
			f.Use(2000)
		}, false},
		"on an engine that keeps no memory": {autoPause, nil, false},
		"without memory, envd does not answer": {dropMemory, func(s *stage, _ *lifecycletest.Fake) {
			s.fail(lifecycletest.Healthy, errors.New("silent"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, func(o *lifecycle.Options) { o.MaxFrozenMemory = 1000 })
				if name == "on an engine that keeps no memory" {
					s.fakes.Lacks = map[engine.Feature]string{engine.Pauses: "it forgets"}
				}
				id := s.create(t, tt.change)
				f := s.fakes.Fake(id)
				if tt.before != nil {
					tt.before(s, f)
				}
				<-time.After(time.Hour)
				synctest.Wait()
				sb := s.get(t, id)
				if sb.State != lifecycle.Paused || sb.Memory != tt.memory || !sb.EndAt.Equal(time.Now()) {
					t.Errorf("got %v, memory %v, since %v, want it paused now, memory %v", sb.State, sb.Memory, sb.EndAt, tt.memory)
				}
				if f.Ended() == tt.memory {
					t.Errorf("ended: %v, want %v", f.Ended(), !tt.memory)
				}
				_ = s.Close()
			})
		})
	}
}

// TestAutoPauseFails checks that a failed automatic pause is tried again for a while, and that the
// sandbox then ends as expired.
func TestAutoPauseFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		works time.Duration // time after which pauses succeed; 0: never
		state string
	}{
		"for a while": {5 * time.Minute, "paused"},
		"for good":    {0, "gone expired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var works atomic.Bool
				s := newStage(t)
				s.fakes.Hook = func(_ context.Context, _ string, op lifecycletest.Operation) error {
					if op == lifecycletest.Save && !works.Load() {
						return errors.New("disk full")
					}
					return nil
				}
				id := s.create(t, dropMemory)
				<-time.After(time.Hour)
				synctest.Wait()
				if sb := s.get(t, id); sb.State != lifecycle.Running || s.fakes.Fake(id).Paused() {
					t.Errorf("after a pause that failed it is %v, want it to run on", sb.State)
				}
				if tt.works > 0 {
					<-time.After(tt.works)
					works.Store(true)
				}
				<-time.After(11 * time.Minute)
				synctest.Wait()
				sb, err := s.Get(id)
				if got := outcome(sb.State.String(), err); got != tt.state {
					t.Errorf("got %s, want %s", got, tt.state)
				}
				if err != nil && !strings.Contains(err.Error(), "disk full") {
					t.Errorf("got %v, want it to say why it could not be paused", err)
				}
				_ = s.Close()
			})
		})
	}
}

// TestWake checks that many concurrent requests resume a sandbox once. Its lifetime is the lifetime
// with which it was created, but at least five minutes.
func TestWake(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		time.Minute:    5 * time.Minute,
		10 * time.Hour: 10 * time.Hour,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t, autoPause, func(q *lifecycle.Request) { q.Lifetime = asked })
				if err := s.SetLifetime(id, time.Second); err != nil { // this lifetime does not count
					t.Fatal(err)
				}
				<-time.After(time.Second)
				synctest.Wait()
				var resumes atomic.Int32
				hook := s.fakes.Hook
				s.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
					if op == lifecycletest.Resume {
						resumes.Add(1)
						<-time.After(time.Second)
					}
					return hook(ctx, id, op)
				}
				var work sync.WaitGroup
				for range 100 {
					work.Go(func() {
						if err := s.Wake(t.Context(), id); err != nil {
							t.Error(err)
						}
					})
				}
				work.Wait()
				if got := resumes.Load(); got != 1 {
					t.Errorf("it was resumed %d times, want once", got)
				}
				if sb := s.get(t, id); sb.State != lifecycle.Running || time.Until(sb.EndAt) != want {
					t.Errorf("it is %v, and lives for %v, want %v", sb.State, time.Until(sb.EndAt), want)
				}
				_ = s.Close()
			})
		})
	}
}

// TestWakeRefused checks sandboxes that a request does not resume, or that it cannot resume now.
func TestWakeRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(t *testing.T, s *stage, id string)
		want   string
	}{
		"killed": {func(t *testing.T, s *stage, id string) {
			if err := s.Kill(id); err != nil {
				t.Error(err)
			}
		}, "asleep"},
		"without autoResume": {func(t *testing.T, s *stage, id string) {
			s.pause(t, id, lifecycle.PauseOptions{})
		}, "asleep"},
		"without memory": {func(t *testing.T, s *stage, id string) { s.pause(t, id, lifecycle.PauseOptions{DropMemory: true}) }, "asleep"},
		"unresponsive": {func(t *testing.T, s *stage, id string) {
			s.fail(lifecycletest.Healthy, errors.New("silent"))
			s.pause(t, id, lifecycle.PauseOptions{})
		}, "asleep"},
		"no place": {func(t *testing.T, s *stage, id string) {
			s.pause(t, id, lifecycle.PauseOptions{})
			s.create(t)
		}, "lifecycle: there are 1 sandboxes, which is the limit"},
		"too slow": {func(t *testing.T, s *stage, id string) {
			s.pause(t, id, lifecycle.PauseOptions{})
			s.hold(lifecycletest.Resume)
		}, "refused resuming"},
		"broken": {func(t *testing.T, s *stage, id string) {
			s.pause(t, id, lifecycle.PauseOptions{})
			s.fail(lifecycletest.Resume, errors.New("broken"))
		}, "lifecycle: launch: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, func(o *lifecycle.Options) { o.MaxSandboxes = 1 })
				id := s.create(t, func(q *lifecycle.Request) { q.AutoResume = name != "without autoResume" })
				tt.before(t, s, id)
				begun := time.Now()
				if got := outcome("ok", s.Wake(t.Context(), id)); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				if took := time.Since(begun); took > time.Minute {
					t.Errorf("it took %v, want at most a minute", took)
				}
				_ = s.Close()
			})
		})
	}
}

// TestEarlierPause checks that a resumed sandbox that ends without being killed becomes paused
// again, in the state of its latest pause to files. Killing it removes these files, too.
func TestEarlierPause(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *stage, id string){
		"expired": func(*stage, string) { <-time.After(time.Hour) },
		"died":    func(s *stage, id string) { s.fakes.Fake(id).Die(engine.ErrOutOfMemory) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t)
				s.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
				first := s.get(t, id)
				for range 2 {
					<-time.After(time.Minute)
					if _, _, err := s.Connect(t.Context(), id, day); err != nil {
						t.Fatal(err)
					}
					must.Do(t, s.SetEgress(id, lifecycle.Network{DenyOut: []string{"10.0.0.0/8"}}, nil))
					end(s, id)
					synctest.Wait()
					if got, want := fmt.Sprintf("%+v", s.get(t, id)), fmt.Sprintf("%+v", first); got != want {
						t.Errorf("got %s, want what it was at its pause, %s", got, want)
					}
				}
				if err := s.Kill(id); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(id); outcome("", err) != "gone killed" {
					t.Errorf("got %v, want it killed", err)
				}
				_ = s.Close()
			})
		})
	}
}

// TestDeathWhilePaused checks that a frozen sandbox without saved files is gone when it
// dies.
func TestDeathWhilePaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		s.pause(t, id, lifecycle.PauseOptions{})
		s.fakes.Fake(id).Die(fmt.Errorf("killed: %w", engine.ErrOutOfMemory))
		synctest.Wait()
		if _, err := s.Get(id); outcome("", err) != "gone out_of_memory" {
			t.Errorf("got %v, want it gone for lack of memory", err)
		}
		_ = s.Close()
	})
}

// TestReasonsAreForgotten checks that the reason for a sandbox's end is remembered for an hour.
func TestReasonsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		must.Do(t, s.Kill(id))
		<-time.After(time.Hour)
		for _, want := range []string{"gone killed", "gone "} {
			if _, err := s.Get(id); outcome("", err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
			<-time.After(time.Second)
		}
		_ = s.Close()
	})
}

// TestNetworkAfterResume checks that a resumed sandbox has the internet access with which it was
// created, even if an update of its network allowed more.
func TestNetworkAfterResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		offline := false
		id := s.create(t, func(q *lifecycle.Request) { q.Internet = &offline })
		if err := s.SetEgress(id, lifecycle.Network{}, nil); err != nil { // allows everything
			t.Fatal(err)
		}
		s.pause(t, id, lifecycle.PauseOptions{})
		if _, _, err := s.Connect(t.Context(), id, day); err != nil {
			t.Fatal(err)
		}
		if rules := s.fakes.Fake(id).Rules(); !rules.DenyAll() {
			t.Errorf("resumed with %+v, want it offline as it was created", rules)
		}
		_ = s.Close()
	})
}

// TestFrozenMemory checks that the total memory of all frozen sandboxes is bounded, even if many
// are paused at once. A resume or a kill frees the memory of its sandbox.
func TestFrozenMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *lifecycle.Options) { o.MaxFrozenMemory = 250 })
		ids := make([]string, 5)
		for i := range ids {
			ids[i] = s.create(t)
			s.fakes.Fake(ids[i]).Use(100)
		}
		var work sync.WaitGroup
		var refused atomic.Int32
		for _, id := range ids {
			work.Go(func() {
				_, over := errors.AsType[*lifecycle.FrozenLimitError](s.Pause(t.Context(), id, lifecycle.PauseOptions{}))
				if over {
					refused.Add(1)
				}
			})
		}
		work.Wait()
		if got := refused.Load(); got != 3 {
			t.Errorf("%d of 5 pauses were refused, want 3", got)
		}
		for _, id := range ids {
			if s.get(t, id).State == lifecycle.Running {
				continue
			}
			if _, _, err := s.Connect(t.Context(), id, day); err != nil {
				t.Error(err)
			}
			s.pause(t, id, lifecycle.PauseOptions{})
		}
		_ = s.Close()
	})
}

// TestPauseWithoutSavedFiles checks an engine that cannot save files. A pause with memory lasts as
// long as the server, and a resume without the memory is refused.
func TestPauseWithoutSavedFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	s.fakes.Lacks = map[engine.Feature]string{engine.SavedFiles: "it is untidy"}
	id := s.create(t)
	must.Do(t, s.Pause(t.Context(), id, lifecycle.PauseOptions{}))
	_, err := s.Resume(t.Context(), id, lifecycle.ResumeOptions{Lifetime: time.Hour, DropMemory: true})
	if _, ok := errors.AsType[*lifecycle.RefusedError](err); !ok {
		t.Errorf("got error %v, want a *RefusedError", err)
	}
	if sb, err := s.Resume(t.Context(), id, lifecycle.ResumeOptions{Lifetime: time.Hour}); err != nil || !sb.Runs() {
		t.Errorf("got %v and error %v, want it to run", sb.State, err)
	}
	_ = s.Close()
}

// TestPauseOfEngine checks that a pause is refused if the engine does not promise it, and that the
// sandbox continues to run.
func TestPauseOfEngine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fakes.Lacks = map[engine.Feature]string{engine.Pauses: "it forgets", engine.SavedFiles: "it is untidy"}
	id := s.create(t)
	for want, do := range map[string]func() error{
		"it forgets":   func() error { return s.Pause(t.Context(), id, lifecycle.PauseOptions{}) },
		"it is untidy": func() error { return s.Pause(t.Context(), id, lifecycle.PauseOptions{DropMemory: true}) },
		"untidy": func() error {
			_, err := s.Snapshot(t.Context(), id, nil)
			return err
		},
	} {
		err := do()
		if refused, ok := errors.AsType[*lifecycle.RefusedError](err); !ok || !strings.Contains(refused.Reason, want) {
			t.Errorf("got error %v, want a *RefusedError with %q", err, want)
		}
		if sb := s.get(t, id); sb.State != lifecycle.Running {
			t.Errorf("it is %v, want it to run on", sb.State)
		}
	}
	_ = s.Close()
}
