package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// wantLayers checks the number of layers in the store.
func wantLayers(t *testing.T, v *server, want int) {
	t.Helper()
	all, err := v.store.Records(store.Layers)
	if err != nil || len(all) != want {
		t.Errorf("got %d layers and error %v, want %d", len(all), err, want)
	}
}

// TestSnapshotFaults checks that a failed snapshot or fork leaves nothing behind and does not
// change the sandbox, whatever happens to the sandbox meanwhile.
func TestSnapshotFaults(t *testing.T) {
	t.Parallel()
	broken := errors.New("no space left on device")
	for name, tt := range map[string]struct {
		during func(t *testing.T, v *server, id string, release, leave func())
		want   string // result of the call
		after  string // result of Get afterwards
	}{
		"nothing": {func(_ *testing.T, _ *server, _ string, release, _ func()) { release() }, "201", "running"},
		"disk full": {func(_ *testing.T, v *server, _ string, release, _ func()) {
			v.fail(lifecycletest.Checkpoint, broken)
			v.fail(lifecycletest.SaveMemory, broken)
			release()
		}, "lifecycle: keep the files: no space left on device", "running"},
		"killed":       {func(_ *testing.T, v *server, id string, _, _ func()) { _ = v.Kill(id) }, "gone killed", "gone killed"},
		"client gone":  {func(_ *testing.T, _ *server, _ string, _, leave func()) { leave() }, "context canceled", "running"},
		"cloud closed": {func(_ *testing.T, v *server, _ string, _, _ func()) { _ = v.Close() }, "lifecycle: keep the files: context canceled", "gone server_gone"},
		"died": {func(_ *testing.T, v *server, id string, release, _ func()) {
			v.fakes.Fake(id).Die(errors.New("no envd"))
			synctest.Wait()
			release()
		}, "gone died", "gone died"},
		"lifetime over": {func(_ *testing.T, v *server, _ string, release, _ func()) {
			v.Advance(2 * time.Hour)
			release()
		}, "201", "gone expired"},
	} {
		for _, call := range []string{"snapshot", "fork", "snapshot with memory", "fork with memory"} {
			t.Run(name+" "+call, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					v := serve(t, dir, shared)
					id := v.create(t)
					held := lifecycletest.Checkpoint
					call, v.fakes.SavesMemory = strings.CutSuffix(call, " with memory")
					if v.fakes.SavesMemory { // the memory is saved first
						held = lifecycletest.SaveMemory
					}
					release := v.hold(held)
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					got := make(chan string, 1)
					go func() { got <- calls[call](ctx, v.stage, id) }()
					synctest.Wait()
					tt.during(t, v, id, release, leave)
					if got := strings.Replace(<-got, lifecycle.ErrMemory.Error()+": ", "", 1); got != tt.want {
						t.Errorf("got %s, want %s", got, tt.want)
					}
					synctest.Wait()
					sb, err := v.Get(id)
					if got := outcome(sb.State.String(), err); got != tt.after {
						t.Errorf("then Get says %s, want %s", got, tt.after)
					}
					children := 0 // they share a layer
					if call == "fork" && tt.want == "201" {
						children = 1
					}
					wantLayers(t, v, children)
					v.end(t)
				})
			})
		}
	}
}

// TestSnapshotWithoutFiles checks that a failure to save the files leaves nothing of the
// memory behind.
func TestSnapshotWithoutFiles(t *testing.T) {
	t.Parallel()
	v := remember(t, t.TempDir(), shared)
	v.fail(lifecycletest.Save, errors.New("no space left on device"))
	id := v.create(t)
	for _, call := range []string{"snapshot", "fork"} {
		if got := calls[call](t.Context(), v.stage, id); !strings.Contains(got, "no space left") {
			t.Errorf("%s: got %s, want why it failed", call, got)
		}
	}
	wantLayers(t, v, 0)
	v.wantDirs(t, 0)
	v.end(t)
}

// TestAbandonedFork checks that no child of a fork is left if its client goes away while children
// start.
func TestAbandonedFork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := serve(t, dir)
		id := v.create(t)
		ctx, leave := context.WithCancel(t.Context())
		var started atomic.Int32
		v.fakes.Before = func(context.Context) {
			if started.Add(1) == 9 {
				leave()
			}
		}
		if forks, err := v.Fork(ctx, id, 10, time.Hour, nil); !errors.Is(err, context.Canceled) || forks != nil {
			t.Errorf("got %v and error %v, want context.Canceled", forks, err)
		}
		if left := v.List(everything); len(left) != 1 || left[0].ID != id {
			t.Errorf("%d sandboxes are left, want only the source", len(left))
		}
		wantLayers(t, v, 0)
		v.end(t)
	})
}

// TestPausedChild checks that a pause of a child saves all its files. So no layer is needed when
// this server or the next one resumes the child.
func TestPausedChild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	id := v.create(t)
	v.fakes.Fake(id).Write("text")
	made, err := v.Snapshot(t.Context(), id, nil)
	must.Do(t, err)
	chain := made.Layers
	child, err := v.Create(t.Context(), lifecycle.Request{Template: lifecycle.Template{ID: "snapshot"}, Lifetime: time.Hour, Layers: chain})
	if err != nil || child.Layers != nil {
		t.Fatalf("got %+v and error %v, want a record without layers", child, err)
	}
	v.layers.Release(chain...)
	if _, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: chain}); !errors.Is(err, layers.ErrGone) {
		t.Errorf("from a layer that is gone: got %v, want ErrGone", err)
	}
	v.pause(t, child.ID, lifecycle.PauseOptions{DropMemory: true})
	v.end(t)
	next := serve(t, dir)
	if _, resumed, err := next.Connect(t.Context(), child.ID, day); err != nil || !resumed {
		t.Fatalf("resumed: %v, %v", resumed, err)
	}
	if got := next.fakes.Fake(child.ID).Files(); got != "text" {
		t.Errorf("it was resumed with the files %q, want %q", got, "text")
	}
	next.end(t)
}

// TestSharedLayers checks that sandboxes that share layers save only their own files. They hold the
// layers, also while they are paused and after a restart, until the layers are no longer needed.
func TestSharedLayers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir, shared)
	from := func(v *server, chain []string) string {
		t.Helper()
		sb, err := v.Create(t.Context(), lifecycle.Request{Template: lifecycle.Template{ID: "snapshot"}, Lifetime: time.Hour, Layers: chain})
		must.Do(t, err)
		return sb.ID
	}
	id := v.create(t)
	var chain []string
	const generations = 15
	for i := range generations {
		v.fakes.Fake(id).Write(string(rune('a' + i)))
		made, err := v.Snapshot(t.Context(), id, nil)
		must.Do(t, err)
		v.layers.Release(chain...)
		chain = made.Layers
		must.Do(t, v.Kill(id))
		id = from(v, chain)
	}
	const all = "abcdefghijklmno"
	if got := v.fakes.Fake(id).Files(); got != all {
		t.Errorf("got the files %q after %d generations, want %q", got, generations, all)
	}
	if len(chain) >= generations { // otherwise a lookup costs more and more
		t.Errorf("got a chain of %d layers, want them merged", len(chain))
	}
	v.fakes.Fake(id).Write("own")
	v.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
	v.layers.Release(chain...)
	wantLayers(t, v, len(chain))
	v.end(t)

	v = serve(t, dir, shared)
	wantLayers(t, v, len(chain))
	if _, _, err := v.Connect(t.Context(), id, day); err != nil {
		t.Fatal(err)
	}
	if got := v.fakes.Fake(id).Files(); got != all+"own" {
		t.Errorf("it was resumed with the files %q, want %q", got, all+"own")
	}
	forks, err := v.Fork(t.Context(), id, 3, time.Hour, nil)
	must.Do(t, err)
	must.Do(t, v.Kill(id))
	wantLayers(t, v, len(chain)+1)
	for _, fork := range forks {
		must.Do(t, fork.Err)
		if got := v.fakes.Fake(fork.Sandbox.ID).Files(); got != all+"own" {
			t.Errorf("a child has the files %q, want %q", got, all+"own")
		}
		must.Do(t, v.Kill(fork.Sandbox.ID))
	}
	wantLayers(t, v, 0)
	v.end(t)
}

// TestNoLongerShared checks a sandbox that shares layers if the machine no longer allows sharing:
// the sandbox is not found, and its record and layers are kept.
func TestNoLongerShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir, shared)
	id := v.create(t)
	made, err := v.Snapshot(t.Context(), id, nil)
	must.Do(t, err)
	chain := made.Layers
	child, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: chain})
	must.Do(t, err)
	v.pause(t, child.ID, lifecycle.PauseOptions{DropMemory: true})
	v.end(t)
	v = serve(t, dir)
	if _, err := v.Get(child.ID); err == nil {
		t.Error("found a sandbox that cannot be resumed")
	}
	wantLayers(t, v, 1)
	v.end(t)
	v = serve(t, dir, shared)
	if _, _, err := v.Connect(t.Context(), child.ID, day); err != nil {
		t.Errorf("with shared layers again: %v", err)
	}
	v.end(t)
}

// TestLayersOfTheResumed checks that a resumed sandbox that ends with its server has the state of
// its latest pause in the next server, with the layers below it.
func TestLayersOfTheResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir, shared)
	id := v.create(t)
	made, err := v.Snapshot(t.Context(), id, nil)
	must.Do(t, err)
	child, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: made.Layers})
	must.Do(t, err)
	v.layers.Release(made.Layers...)
	must.Do(t, v.Kill(id))
	v.pause(t, child.ID, lifecycle.PauseOptions{DropMemory: true})
	if _, _, err := v.Connect(t.Context(), child.ID, day); err != nil {
		t.Fatal(err)
	}
	v.end(t)
	v = serve(t, dir, shared)
	wantLayers(t, v, 1)
	if _, _, err := v.Connect(t.Context(), child.ID, day); err != nil {
		t.Errorf("with the next server: %v", err)
	}
	if err := v.Kill(child.ID); err != nil {
		t.Error(err)
	}
	wantLayers(t, v, 0)
	v.end(t)
}

// TestUnreadableKeepsLayers checks that no layer is removed while a record is unreadable, because
// the sandbox of this record may share layers. The sandbox exists again once its record can be
// read.
func TestUnreadableKeepsLayers(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, dir, id string){
		"damaged": func(t *testing.T, dir, id string) { storetest.Damage(t, dir, store.Sandboxes, id) },
		"of another version": func(t *testing.T, dir, id string) {
			st, err := store.Open(t.Context(), dir)
			if err == nil {
				_, err = st.Put(store.Sandboxes, id, []byte(`{"Version":2}`), "")
			}
			if err == nil {
				err = st.Close()
			}
			must.Do(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			v := serve(t, dir, shared)
			made, err := v.Snapshot(t.Context(), v.create(t), nil)
			must.Do(t, err)
			var ids []string
			for range 2 {
				child, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: made.Layers})
				must.Do(t, err)
				made, err = v.Snapshot(t.Context(), child.ID, nil)
				must.Do(t, err)
				v.pause(t, child.ID, lifecycle.PauseOptions{DropMemory: true})
				ids = append(ids, child.ID)
			}
			upper, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: made.Layers})
			must.Do(t, err)
			v.pause(t, upper.ID, lifecycle.PauseOptions{DropMemory: true})
			v.crash(t)
			damage(t, dir, upper.ID)
			next := serve(t, dir, shared)
			wantLayers(t, next, 3)
			for _, id := range ids {
				resume(t, next, id)
			}
			next.end(t)
		})
	}
}
