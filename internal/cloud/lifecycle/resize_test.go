package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestResize checks that a resize changes only the requested resources, also of forks, snapshots,
// resumes and the next server, and that a failed resize changes nothing.
func TestResize(t *testing.T) {
	t.Parallel()
	v := serve(t, t.TempDir())
	id := v.create(t, func(q *lifecycle.Request) { q.Resources = engine.Resources{CPUs: 1, DiskBytes: 3} })
	check := func(what string, v *server, id string, want engine.Resources) {
		t.Helper()
		if sb, err := v.Get(id); err != nil || sb.Resources != want {
			t.Errorf("%s: got %+v, %v, want %+v", what, sb.Resources, err, want)
		}
	}
	want := engine.Resources{CPUs: 2, MemoryBytes: 5, DiskBytes: 3}
	must.Do(t, v.Resize(t.Context(), id, engine.Resources{CPUs: 2, MemoryBytes: 5}))
	check("a resize", v, id, want)
	if got := v.fakes.Fake(id).Has(); got != want {
		t.Errorf("the sandbox has %+v, want %+v", got, want)
	}
	all := func(*lifecycle.Event) bool { return true }
	if last, _ := v.Events().Latest(all, 0, 1, false); len(last) != 1 || last[0].Type != lifecycle.EventUpdated || last[0].Message != "resources" {
		t.Errorf("the last event is %+v, want %s", last, lifecycle.EventUpdated)
	}

	failure := &engine.InUseError{Resource: "memory", Used: 4, Most: 1}
	v.fail(lifecycletest.Resize, failure)
	if err := v.Resize(t.Context(), id, engine.Resources{MemoryBytes: 1}); !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
	check("a failed resize", v, id, want)

	forks, err := v.Fork(t.Context(), id, 1, time.Hour, nil)
	must.Do(t, err)
	check("a fork", v, forks[0].Sandbox.ID, want)
	made, err := v.Snapshot(t.Context(), id, nil)
	must.Do(t, err)
	v.layers.Release(made.Layers...)
	if made.Sandbox.Resources != want {
		t.Errorf("a snapshot has %+v, want %+v", made.Sandbox.Resources, want)
	}
	v.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
	must.Do(t, v.Close())
	must.Do(t, v.store.Close())
	next := serve(t, v.dir)
	_, err = next.Resume(t.Context(), id, day)
	must.Do(t, err)
	check("the next server", next, id, want)
	if got := next.fakes.Spec(id).Resources; got != want {
		t.Errorf("the next server launched it with %+v, want %+v", got, want)
	}
}

// TestResizeLacks checks that a resize is refused by the name of the missing feature, and not for the lack of one
// that it does not need.
func TestResizeLacks(t *testing.T) {
	t.Parallel()
	all := engine.Resources{CPUs: 1, MemoryBytes: 1, DiskBytes: 1}
	for f, without := range map[engine.Feature]engine.Resources{
		engine.Resizes: {}, engine.CPULimit: {MemoryBytes: 1, DiskBytes: 1}, engine.MemoryLimit: {CPUs: 1, DiskBytes: 1}, engine.DiskLimit: {CPUs: 1, MemoryBytes: 1},
	} {
		s := newStage(t)
		s.fakes.Lacks = map[engine.Feature]string{f: "no " + string(f)}
		id := s.create(t)
		err := s.Resize(t.Context(), id, all)
		if refused, ok := errors.AsType[*lifecycle.RefusedError](err); !ok || !strings.Contains(refused.Reason, string(f)) {
			t.Errorf("%s: got %v, want a refusal with its name", f, err)
		}
		if err := s.Resize(t.Context(), id, without); (err == nil) != (f != engine.Resizes) {
			t.Errorf("without %s: got %v for %+v", f, err, without)
		}
	}
}

// TestResizeOfTheDying checks that a resize whose failure is the first sign of the end of a sandbox returns when
// its end is known, and that each end of a resize is logged.
func TestResizeOfTheDying(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		failure := errors.New("no envd")
		v := serve(t, t.TempDir())
		hook := v.fakes.Hook
		v.fakes.Hook = func(ctx context.Context, id string, op lifecycletest.Operation) error {
			if dies && op == lifecycletest.Healthy {
				v.fakes.Fake(id).Die(failure)
			}
			return hook(ctx, id, op)
		}
		id := v.create(t)
		v.fail(lifecycletest.Resize, failure)
		if err := v.Resize(t.Context(), id, engine.Resources{CPUs: 3}); (reasonOf(err) == lifecycle.Died) != dies || !dies && !errors.Is(err, failure) {
			t.Errorf("of one that dies, %v: got error %v", dies, err)
		}
		if n := v.Running(lifecycle.Query{}); (n == 0) != dies {
			t.Errorf("of one that dies, %v: %d run", dies, n)
		}
		v.fail(lifecycletest.Resize, nil)
		if err := v.Resize(t.Context(), id, engine.Resources{CPUs: 3, MemoryBytes: 4, DiskBytes: 5}); (err == nil) == dies {
			t.Errorf("of one that dies, %v: got error %v", dies, err)
		}
		log := v.log.String()
		for text, want := range map[string]bool{
			`level=WARN msg="sandbox not resized" sandbox=` + id + ` error="no envd"`: true, `msg="sandbox resized" sandbox=` + id + " cpus=3 memory=4 disk=5": !dies,
		} {
			if strings.Contains(log, text) != want {
				t.Errorf("of one that dies, %v: logged %s, want %s in it: %v", dies, log, text, want)
			}
		}
	}
}
