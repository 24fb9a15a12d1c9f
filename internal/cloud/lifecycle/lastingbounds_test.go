package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestAdoptedLifetimeIsBounded checks that the longest lifetime counts from the start of a sandbox, also for a
// server that adopted the sandbox later.
func TestAdoptedLifetimeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		first := c.registry(t)
		sb := create(t, first, lifecycle.DefaultMaxLifetime)
		must.Do(t, end(t, first))
		<-time.After(20 * time.Hour)
		next := c.registry(t)
		defer end(t, next)
		<-time.After(time.Hour)
		must.Do(t, next.SetLifetime(sb.ID, time.Minute))
		must.Do(t, next.Extend(sb.ID, lifecycle.DefaultMaxLifetime))
		if got, err := next.Get(sb.ID); err != nil || !got.EndAt.Equal(sb.StartedAt.Add(lifecycle.DefaultMaxLifetime)) {
			t.Errorf("it ends at %v (%v), want %v after its start at %v", got.EndAt, err, lifecycle.DefaultMaxLifetime, sb.StartedAt)
		}
	})
}

// TestLastingIsNotPausedAtEnd checks that a server with a durable store pauses no sandbox that outlives it, even one
// that is paused at the end of its lifetime.
func TestLastingIsNotPausedAtEnd(t *testing.T) {
	t.Parallel()
	durable, err := store.Open(t.Context(), t.TempDir())
	must.Do(t, err)
	c := &cluster{records: map[string]engine.Record{}}
	r := c.registry(t, func(o *lifecycle.Options) { o.Store = durable })
	sb, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, AutoPause: true, KeepMemory: true})
	must.Do(t, err)
	must.Do(t, end(t, r))
	kept, err := durable.Records(store.Sandboxes)
	if err != nil || len(kept) > 0 || c.boxes[0].Paused() || c.records[sb.ID].Paused {
		t.Errorf("it was paused: %v, with the record %+v and %d in the store (%v), want it to go on", c.boxes[0].Paused(), c.records[sb.ID], len(kept), err)
	}
	if c.records[sb.ID].StartedAt.IsZero() {
		t.Error("its record is gone")
	}
	must.Do(t, durable.Close())
}

// TestOtherRequestMeanwhile checks that a repeated request does not get a sandbox that another server makes
// meanwhile for a different request with the same key.
func TestOtherRequestMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "i0123456789abcdefghij"
		c := &cluster{records: map[string]engine.Record{}}
		see := c.launch(&lifecycletest.Fakes{})
		late := serverOfOne(t, id, isMadeElsewhere)
		defer end(t, late)
		q := lifecycle.Request{Template: base, Lifetime: time.Hour}
		joined := make(chan error, 1)
		go func() {
			_, err := late.CreateOnce(t.Context(), "key", q)
			joined <- err
		}()
		synctest.Wait()
		first := serverOfOne(t, id, see)
		defer end(t, first)
		q.Metadata = map[string]string{"another": "request"}
		_, err := first.CreateOnce(t.Context(), "key", q)
		must.Do(t, err)
		c.adopt(t, late, see)
		must.Is(t, <-joined, lifecycle.ErrKeyReused)
	})
}
