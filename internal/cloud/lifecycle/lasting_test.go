package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// cluster keeps the records of sandboxes that outlive registries.
type cluster struct {
	mu      sync.Mutex
	fail    error // of Keep
	home    bool  // its sandboxes suspend
	records map[string]engine.Record
	boxes   []*box
}

// box is the view of one registry of a sandbox of the cluster.
type box struct {
	*lifecycletest.Fake

	id      string
	cluster *cluster
	changed chan struct{}
	follows []bool        // arguments of Follow
	leaves  error         // result of Leave
	held    chan struct{} // a Resize waits until it is closed; nil: it does not wait
}

// hold makes a Resize wait for release.
func (b *box) hold(release chan struct{}) { b.held = release }

func (b *box) Resize(ctx context.Context, r engine.Resources) error {
	if b.held != nil {
		<-b.held
	}
	return b.Fake.Resize(ctx, r)
}

func (c *cluster) see(id string, i lifecycle.Instance) *box {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &box{Fake: i.(*lifecycletest.Fake), id: id, cluster: c, changed: make(chan struct{})}
	c.boxes = append(c.boxes, b)
	return b
}

func (b *box) Keep(_ context.Context, r engine.Record) error {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	if b.cluster.fail != nil {
		return b.cluster.fail
	}
	b.cluster.records[b.id] = r
	for _, other := range b.cluster.boxes {
		if other != b && other.id == b.id {
			close(other.changed)
			other.changed = make(chan struct{})
		}
	}
	return nil
}

func (b *box) Kept() (engine.Record, <-chan struct{}) {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	return b.cluster.records[b.id], b.changed
}

func (b *box) Leave() error { return errors.Join(b.leaves, b.Fake.Close()) }

func (b *box) Follow(paused bool) {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	b.follows = append(b.follows, paused)
}

func (b *box) Close() error {
	b.cluster.mu.Lock()
	delete(b.cluster.records, b.id)
	var others []*box
	for _, other := range b.cluster.boxes {
		if other != b && other.id == b.id {
			others = append(others, other)
		}
	}
	b.cluster.mu.Unlock()
	for _, other := range others {
		other.Die(fmt.Errorf("its pod was deleted: %w", engine.ErrElsewhere))
	}
	return b.Fake.Close()
}

// registry returns a registry whose sandboxes are those of the cluster.
func (c *cluster) registry(t *testing.T, change ...func(*lifecycle.Options)) *lifecycle.Registry {
	t.Helper()
	f := &lifecycletest.Fakes{Suspends: c.home}
	launch := func(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
		i, err := f.Launch(ctx, spec)
		if err != nil {
			return nil, err
		}
		return c.see(spec.ID, i), nil
	}
	o := lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: launch, MaxSandboxes: 1}
	for _, change := range change {
		change(&o)
	}
	r := lifecycle.New(o)
	c.adopt(t, r, launch)
	return r
}

func (c *cluster) adopt(t *testing.T, r *lifecycle.Registry, launch func(context.Context, lifecycle.Spec) (lifecycle.Instance, error)) {
	t.Helper()
	c.mu.Lock()
	all := make(map[string]engine.Record, len(c.records))
	for id, record := range c.records {
		all[id] = record
	}
	c.mu.Unlock()
	for id, record := range all {
		for range 2 { // the second time nothing happens
			must.Do(t, r.Adopt(id, record, func(spec lifecycle.Spec) (lifecycle.Lasting, error) {
				i, err := launch(t.Context(), spec)
				if err != nil {
					return nil, err
				}
				return i.(lifecycle.Lasting), nil
			}))
		}
	}
}

// TestLasting checks that the next registry has the sandboxes of the one before, and finds the sandbox
// of a repeated request.
func TestLasting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		r := c.registry(t)
		q := lifecycle.Request{Template: base, Lifetime: time.Hour, Secure: true, Metadata: map[string]string{"a": "b"}, Envs: map[string]string{"V": "secret"}}
		sb, err := r.CreateOnce(t.Context(), "key", q)
		must.Do(t, err)
		must.Do(t, r.SetLifetime(sb.ID, 2*time.Hour))
		sb, err = r.Get(sb.ID)
		must.Do(t, err)
		must.Do(t, end(t, r))
		if len(c.records) != 1 {
			t.Fatalf("after Close, there are the records %v", c.records)
		}

		over := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir())})
		must.Do(t, end(t, over))
		must.Is(t, over.Adopt(sb.ID, c.records[sb.ID], func(lifecycle.Spec) (lifecycle.Lasting, error) {
			t.Error("a closed registry opened a sandbox")
			return nil, lifecycle.ErrClosed
		}), lifecycle.ErrClosed)

		r = c.registry(t)
		defer end(t, r)
		got, err := r.Get(sb.ID)
		must.Do(t, err)
		if got.AccessToken != sb.AccessToken || got.AccessToken == "" || got.Envs["V"] != "secret" || got.Metadata["a"] != "b" {
			t.Errorf("got %+v, want %+v", got, sb)
		}
		if !got.EndAt.Equal(sb.EndAt) || !got.StartedAt.Equal(sb.StartedAt) {
			t.Errorf("it lives from %v to %v, want %v to %v", got.StartedAt, got.EndAt, sb.StartedAt, sb.EndAt)
		}
		if id := r.Remembered("key"); id != sb.ID {
			t.Fatalf("the request is remembered with the sandbox %q, want %q", id, sb.ID)
		}
		again, err := r.CreateOnce(t.Context(), "key", q)
		if err != nil || again.ID != sb.ID {
			t.Errorf("the repeated request made %q, %v", again.ID, err)
		}
		q.Metadata = nil
		_, err = r.CreateOnce(t.Context(), "key", q)
		must.Is(t, err, lifecycle.ErrKeyReused)
		if _, err := r.Create(t.Context(), q); !isLimit(err) {
			t.Errorf("the adopted sandbox has no place: %v", err)
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if _, err := r.Get(sb.ID); reasonOf(err) != lifecycle.Expired || len(c.records) > 0 {
			t.Errorf("after its lifetime: %v, and the records %v", err, c.records)
		}
	})
}

func reasonOf(err error) lifecycle.Reason {
	if gone, ok := errors.AsType[*lifecycle.NotFoundError](err); ok {
		return gone.Reason
	}
	return ""
}

// TestTwoRegistries checks that a registry takes over the changes of another one.
func TestTwoRegistries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		a := c.registry(t)
		defer end(t, a)
		sb := create(t, a, time.Hour)
		b := c.registry(t)
		defer end(t, b)
		must.Do(t, b.SetLifetime(sb.ID, 2*time.Hour))
		<-time.After(90 * time.Minute)
		synctest.Wait()
		for name, r := range map[string]*lifecycle.Registry{"the one that made it": a, "the other": b} {
			if got, err := r.Get(sb.ID); err != nil || !got.EndAt.Equal(sb.EndAt.Add(time.Hour)) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		}
		must.Do(t, b.Kill(sb.ID))
		synctest.Wait()
		if _, err := a.Get(sb.ID); reasonOf(err) != lifecycle.Killed {
			t.Errorf("after the other has killed it: %v", err)
		}
	})
}

// TestMissedTurns checks the order of a registry's list after another one paused and resumed a sandbox, of
// which this one saw only the end.
func TestMissedTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		two := func(o *lifecycle.Options) { o.MaxSandboxes = 2 }
		a := c.registry(t, two)
		defer end(t, a)
		first := create(t, a, time.Hour)
		<-time.After(time.Minute)
		second := create(t, a, time.Hour)
		<-time.After(time.Minute)
		b := c.registry(t, two)
		defer end(t, b)
		synctest.Wait()
		deaf := c.boxes[0] // of a and first
		c.mu.Lock()
		deaf.id = ""
		c.mu.Unlock()
		must.Do(t, b.Pause(t.Context(), first.ID, lifecycle.PauseOptions{}))
		_, resumed, err := b.Connect(t.Context(), first.ID, lifecycle.ResumeOptions{Lifetime: time.Hour})
		if must.Do(t, err); !resumed {
			t.Error("it was not resumed")
		}
		c.mu.Lock()
		deaf.id = first.ID
		close(deaf.changed)
		deaf.changed = make(chan struct{})
		c.mu.Unlock()
		synctest.Wait()
		for name, r := range map[string]*lifecycle.Registry{"the one that missed it": a, "the other": b} {
			var got []string
			for _, sb := range r.Page(lifecycle.Query{Running: true, Ascending: true, Limit: 10}) {
				got = append(got, sb.ID)
			}
			if want := []string{second.ID, first.ID}; !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	})
}

// TestRecordIsNotStored checks that nobody gets a sandbox whose record is not stored, and that a change
// which is not stored is reported.
func TestRecordIsNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("the API server is gone")
		c := &cluster{records: map[string]engine.Record{}, fail: failure}
		r := c.registry(t)
		defer end(t, r)
		_, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour})
		must.Is(t, err, failure)
		if running, _ := r.Count(); running != 0 || c.boxes[0].Err() == nil {
			t.Errorf("%d sandboxes run", running)
		}
		c.fail = nil
		sb := create(t, r, time.Hour)
		for name, call := range map[string]func() error{
			"a lifetime":   func() error { return r.SetLifetime(sb.ID, 2*time.Hour) },
			"an extension": func() error { return r.Extend(sb.ID, 3*time.Hour) },
			"rules":        func() error { return r.SetEgress(sb.ID, lifecycle.Network{DenyOut: []string{"10.0.0.0/8"}}, nil) },
			"a connect": func() error {
				_, _, err := r.Connect(t.Context(), sb.ID, lifecycle.ResumeOptions{Lifetime: 4 * time.Hour})
				return err
			},
		} {
			c.fail = failure
			if err := call(); !errors.Is(err, failure) {
				t.Errorf("%s: got error %v, want %v", name, err, failure)
			}
			c.fail = errors.Join(engine.ErrGone)
			if err := call(); !isNotFound(err) {
				t.Errorf("%s of a sandbox whose object is gone: got error %v", name, err)
			}
		}
	})
}

func isNotFound(err error) bool {
	gone, ok := errors.AsType[*lifecycle.NotFoundError](err)
	return ok && gone.ID != ""
}

// launch returns a function for [lifecycle.Options] that adds each sandbox to the cluster.
func (c *cluster) launch(f *lifecycletest.Fakes) func(context.Context, lifecycle.Spec) (lifecycle.Instance, error) {
	return func(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
		i, err := f.Launch(ctx, spec)
		if err != nil {
			return nil, err
		}
		return c.see(spec.ID, i), nil
	}
}

// isMadeElsewhere fails as a launch does while another server makes the same sandbox.
func isMadeElsewhere(context.Context, lifecycle.Spec) (lifecycle.Instance, error) {
	return nil, fmt.Errorf("kubernetes: %w", engine.ErrExists)
}

// serverOfOne returns a registry in which every key stands for the sandbox id.
func serverOfOne(t *testing.T, id string, launch func(context.Context, lifecycle.Spec) (lifecycle.Instance, error)) *lifecycle.Registry {
	t.Helper()
	return lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: launch, IDOf: func(string) string { return id }})
}

// TestOnceAmongRegistries checks that a repeated request which reaches a second server while the first
// one still makes the sandbox gets that sandbox, and that nobody waits forever.
func TestOnceAmongRegistries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "i0123456789abcdefghij"
		c := &cluster{records: map[string]engine.Record{}}
		see := c.launch(&lifecycletest.Fakes{})
		q := lifecycle.Request{Template: base, Lifetime: time.Hour, Secure: true}
		second := serverOfOne(t, id, isMadeElsewhere)
		defer end(t, second)
		type result struct {
			sb  lifecycle.Sandbox
			err error
		}
		repeated := make(chan result, 1)
		repeat := func(q lifecycle.Request) {
			go func() {
				sb, err := second.CreateOnce(t.Context(), "key", q)
				repeated <- result{sb, err}
			}()
			synctest.Wait()
		}
		repeat(q)
		must.Is(t, (<-repeated).err, engine.ErrExists) // the other server has failed after all

		repeat(q)
		first := serverOfOne(t, id, see)
		defer end(t, first)
		sb, err := first.CreateOnce(t.Context(), "key", q)
		must.Do(t, err)
		c.adopt(t, second, see)
		got := <-repeated
		must.Do(t, got.err)
		if sb.ID != id || got.sb.ID != id || got.sb.AccessToken != sb.AccessToken {
			t.Errorf("made %+v, and the repeated request got %+v", sb, got.sb)
		}
		if running, _ := second.Count(); running != 1 {
			t.Errorf("the second server has %d sandboxes", running)
		}
		q.Metadata = map[string]string{"another": "request"}
		repeat(q)
		must.Is(t, (<-repeated).err, lifecycle.ErrKeyReused)
	})
}
