package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// stage contains a registry of fakes. Tests can make the operations of the fakes wait.
type stage struct {
	*lifecycle.Registry
	fakes  lifecycletest.Fakes
	layers *holding
	t      *testing.T
	dir    string // directory of its store

	mu    sync.Mutex
	held  map[lifecycletest.Operation]chan struct{}
	fails map[lifecycletest.Operation]error
	ended map[string]int // number of reported ends, keyed by sandbox
}

func newStage(t *testing.T, change ...func(*lifecycle.Options)) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), held: map[lifecycletest.Operation]chan struct{}{}, fails: map[lifecycletest.Operation]error{}, ended: map[string]int{}}
	s.fakes.Hook = func(ctx context.Context, _ string, op lifecycletest.Operation) error {
		s.mu.Lock()
		held := s.held[op]
		s.mu.Unlock()
		if held != nil {
			select {
			case <-held:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fails[op]
	}
	o := lifecycle.Options{Launch: s.fakes.Launch, Store: store.Temporary(s.dir)}
	for _, c := range change {
		c(&o)
	}
	o.Ended = func(id string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended[id]++
	}
	if o.Layers == nil {
		o.Layers = layers.Open(layers.Options{Store: o.Store})
	}
	s.layers = &holding{Set: o.Layers, held: map[string]int{}}
	s.Registry = lifecycle.New(o)
	s.layers.Sweep()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// hold makes an operation wait until release is called or the context of the operation ends.
func (s *stage) hold(op lifecycletest.Operation) (release func()) {
	held := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[op] = held
	return func() { close(held) }
}

// fail makes an operation fail from now on.
func (s *stage) fail(op lifecycletest.Operation, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[op] = err
}

func (s *stage) create(t *testing.T, change ...func(*lifecycle.Request)) string {
	t.Helper()
	q := lifecycle.Request{Template: base, Lifetime: time.Hour, KeepMemory: true, AutoResume: true}
	for _, c := range change {
		c(&q)
	}
	sb, err := s.Create(t.Context(), q)
	must.Do(t, err)
	return sb.ID
}

func (s *stage) pause(t *testing.T, id string, o lifecycle.PauseOptions) {
	t.Helper()
	must.Do(t, s.Pause(t.Context(), id, o))
}

// outcome returns a short name for the result of a call.
func outcome(ok string, err error) string {
	gone, isGone := errors.AsType[*lifecycle.NotFoundError](err)
	busy, isBusy := errors.AsType[*lifecycle.StateError](err)
	switch {
	case err == nil:
		return ok
	case isGone && gone.Paused:
		return "is paused"
	case isGone:
		return "gone " + string(gone.Reason)
	case isBusy:
		return "refused " + busy.State.String()
	case errors.Is(err, lifecycle.ErrAsleep):
		return "asleep"
	}
	return err.Error()
}

var day = lifecycle.ResumeOptions{Lifetime: time.Hour}

// calls contains the calls of a client, keyed by name. Each returns the outcome of the call.
var calls = map[string]func(context.Context, *stage, string) string{
	"get": func(_ context.Context, s *stage, id string) string {
		sb, err := s.Get(id)
		return outcome(sb.State.String(), err)
	},
	"connect": func(ctx context.Context, s *stage, id string) string {
		_, resumed, err := s.Connect(ctx, id, day)
		return outcome(map[bool]string{false: "200", true: "201"}[resumed], err)
	},
	"resume": func(ctx context.Context, s *stage, id string) string {
		_, err := s.Resume(ctx, id, day)
		return outcome("201", err)
	},
	"pause": func(ctx context.Context, s *stage, id string) string {
		return outcome("204", s.Pause(ctx, id, lifecycle.PauseOptions{}))
	},
	"pause to files": func(ctx context.Context, s *stage, id string) string {
		return outcome("204", s.Pause(ctx, id, lifecycle.PauseOptions{DropMemory: true}))
	},
	"timeout": func(_ context.Context, s *stage, id string) string {
		return outcome("204", s.SetLifetime(id, time.Hour))
	},
	"network": func(_ context.Context, s *stage, id string) string {
		return outcome("204", s.SetEgress(id, lifecycle.Network{}, nil))
	},
	"kill": func(_ context.Context, s *stage, id string) string { return outcome("204", s.Kill(id)) },
	"snapshot": func(ctx context.Context, s *stage, id string) string {
		made, err := s.Snapshot(ctx, id, nil)
		s.layers.Release(made.Layers...)
		return outcome("201", err)
	},
	"fork": func(ctx context.Context, s *stage, id string) string {
		_, err := s.Fork(ctx, id, 1, time.Hour, nil)
		return outcome("201", err)
	},
	"resize": func(ctx context.Context, s *stage, id string) string {
		return outcome("204", s.Resize(ctx, id, engine.Resources{CPUs: 1}))
	},
	"wake": func(ctx context.Context, s *stage, id string) string { return outcome("ok", s.Wake(ctx, id)) },
}

// TestStates checks that every call in every state has the same result as on the service, except
// that snapshots and forks wait for each other. The service cannot resize.
func TestStates(t *testing.T) {
	t.Parallel()
	states := []string{"running", "pausing", "paused", "resuming", "snapshotting", "resizing", "killing"}
	for call, wants := range map[string][7]string{
		// "waits" means that it waits for the transition.
		"get":            {"running", "pausing", "paused", "resuming", "snapshotting", "resizing", "gone killed"},
		"connect":        {"200", "waits 201", "201", "waits 201", "waits 200", "waits 200", "refused killing"},
		"resume":         {"refused running", "waits 201", "201", "waits 201", "refused snapshotting", "refused resizing", "gone killed"},
		"pause":          {"204", "waits 204", "refused paused", "waits 204", "waits 204", "waits 204", "gone killed"},
		"pause to files": {"204", "waits 204", "refused paused", "waits 204", "waits 204", "waits 204", "gone killed"},
		"timeout":        {"204", "refused pausing", "is paused", "refused resuming", "refused snapshotting", "waits 204", "refused killing"},
		"network":        {"204", "refused pausing", "is paused", "refused resuming", "refused snapshotting", "waits 204", "gone killed"},
		"kill":           {"204", "204", "204", "204", "204", "204", "gone killed"},
		"snapshot":       {"201", "waits is paused", "is paused", "waits 201", "waits 201", "waits 201", "gone killed"},
		"fork":           {"201", "waits refused paused", "refused paused", "waits 201", "waits 201", "waits 201", "gone killed"},
		"resize":         {"204", "waits is paused", "is paused", "waits 204", "waits 204", "waits 204", "gone killed"},
		"wake":           {"ok", "waits ok", "ok", "waits ok", "waits ok", "waits ok", "asleep"},
	} {
		for i, state := range states {
			t.Run(call+" "+state, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					// With room for one, the next sandbox shows a wrong counter.
					s := newStage(t, func(o *lifecycle.Options) { o.MaxSandboxes, o.MaxFrozen, o.MaxKept = 1, 1, 1 })
					id := s.create(t)
					release := s.bring(t, id, state)
					got := make(chan string, 1)
					go func() { got <- calls[call](t.Context(), s, id) }()
					synctest.Wait()
					waits := ""
					if len(got) == 0 {
						waits = "waits "
					}
					release()
					if got := waits + <-got; got != wants[i] {
						t.Errorf("got %s, want %s", got, wants[i])
					}
					synctest.Wait()
					_ = s.Kill(id)
					next := s.create(t)
					s.pause(t, next, lifecycle.PauseOptions{})
					if err := s.Kill(next); err != nil {
						t.Error(err)
					}
					next = s.create(t)
					s.pause(t, next, lifecycle.PauseOptions{DropMemory: true})
					_ = s.Close()
				})
			})
		}
	}
}

// bring changes the state of a running sandbox. If the state is a transition, it lasts until
// release is called.
func (s *stage) bring(t *testing.T, id, state string) (release func()) {
	t.Helper()
	release = func() {}
	switch state {
	case "pausing":
		release = s.hold(lifecycletest.Pause)
		go func() { _ = s.Pause(t.Context(), id, lifecycle.PauseOptions{}) }()
	case "paused":
		s.pause(t, id, lifecycle.PauseOptions{})
	case "resuming":
		s.pause(t, id, lifecycle.PauseOptions{})
		release = s.hold(lifecycletest.Resume)
		go func() { _, _, _ = s.Connect(t.Context(), id, day) }()
	case "snapshotting":
		release = s.hold(lifecycletest.Checkpoint)
		go func() {
			made, _ := s.Snapshot(t.Context(), id, nil)
			s.layers.Release(made.Layers...)
		}()
	case "resizing":
		release = s.hold(lifecycletest.Resize)
		go func() { _ = s.Resize(t.Context(), id, engine.Resources{CPUs: 2}) }()
	case "killing":
		release = s.hold(lifecycletest.Close)
		go func() { _ = s.Kill(id) }()
	}
	synctest.Wait()
	return release
}

// TestPauseWithMemory checks that a pause with memory stops the instance, and that the same
// instance continues after a resume.
func TestPauseWithMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		f := s.fakes.Fake(id)
		<-time.After(time.Minute)
		s.pause(t, id, lifecycle.PauseOptions{})
		paused, err := s.Get(id)
		must.Do(t, err)
		if !f.Paused() || paused.State != lifecycle.Paused || !paused.Memory || !paused.EndAt.Equal(time.Now()) {
			t.Errorf("paused: %v, %+v, want it paused now, with its memory", f.Paused(), paused)
		}
		<-time.After(24 * time.Hour) // no lifetime counts
		sb, resumed, err := s.Connect(t.Context(), id, lifecycle.ResumeOptions{Lifetime: time.Minute})
		if err != nil || !resumed || f.Paused() {
			t.Fatalf("resumed: %v, %v, want true and no error", resumed, err)
		}
		if !sb.StartedAt.Equal(time.Now()) || sb.EndAt.Sub(sb.StartedAt) != time.Minute {
			t.Errorf("runs from %v to %v, want a minute from now", sb.StartedAt, sb.EndAt)
		}
		if got := s.fakes.Fake(id); got != f || f.Ended() {
			t.Error("it was started anew, want the same instance")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if !f.Ended() {
			t.Error("it lives on after its new lifetime")
		}
		_ = s.Close()
	})
}

// TestPauseToFiles checks that a pause to files ends the instance, and that a resume starts another
// instance with these files.
func TestPauseToFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t, func(q *lifecycle.Request) {
			q.Secure, q.Envs = true, map[string]string{"A": "b"}
			q.Network = &lifecycle.Network{DenyOut: []string{"10.0.0.0/8"}, MaskHost: "a.test", AllowPublicTraffic: new(bool)}
		})
		first, spec := s.fakes.Fake(id), s.fakes.Spec(id)
		s.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
		if sb, err := s.Get(id); !first.Ended() || err != nil || sb.Memory {
			t.Errorf("ended: %v, %+v, %v, want an ended instance and no memory", first.Ended(), sb, err)
		}
		if err := s.Wake(t.Context(), id); !errors.Is(err, lifecycle.ErrAsleep) {
			t.Errorf("a request wakes it: %v, want ErrAsleep", err)
		}
		if _, resumed, err := s.Connect(t.Context(), id, day); err != nil || !resumed {
			t.Fatalf("resumed: %v, %v", resumed, err)
		}
		again := s.fakes.Spec(id)
		if again.Files == "" {
			t.Error("it was started without files")
		}
		again.Files, again.Egress = "", spec.Egress
		if got, want := fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", spec); got != want {
			t.Errorf("it was started with %s, want %s", got, want)
		}
		_ = s.Close()
	})
}
