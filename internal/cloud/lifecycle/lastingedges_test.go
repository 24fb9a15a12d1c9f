package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/e2bctl/e2bctl/internal/patience"
)

// logging returns a log, and the option with which a registry writes it.
func logging() (*lockedBuffer, func(*lifecycle.Options)) {
	var log lockedBuffer
	return &log, func(o *lifecycle.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
}

// TestLastingDuringChange checks what another server does to a sandbox while its state changes here: a
// new record is taken over afterwards, and an end after its lifetime is the end of its lifetime.
func TestLastingDuringChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		a := c.registry(t)
		defer end(t, a)
		sb := create(t, a, time.Hour)
		b := c.registry(t)
		defer end(t, b)
		release := make(chan struct{})
		c.boxes[0].hold(release)
		resized := make(chan error, 1)
		go func() { resized <- a.Resize(t.Context(), sb.ID, engine.Resources{CPUs: 2}) }()
		synctest.Wait()
		must.Do(t, b.SetLifetime(sb.ID, 2*time.Hour))
		synctest.Wait()
		close(release)
		must.Do(t, <-resized)
		synctest.Wait()
		for _, r := range []*lifecycle.Registry{a, b} {
			if got, err := r.Get(sb.ID); err != nil || !got.EndAt.Equal(sb.EndAt.Add(time.Hour)) || got.Resources.CPUs != 2 {
				t.Errorf("it ends at %v with %v processors (%v), want an hour after %v with 2", got.EndAt, got.Resources.CPUs, err, sb.EndAt)
			}
		}

		release = make(chan struct{})
		c.boxes[0].hold(release)
		go func() { resized <- a.Resize(t.Context(), sb.ID, engine.Resources{CPUs: 3}) }()
		<-time.After(2*time.Hour + time.Minute)
		synctest.Wait() // b has ended it
		close(release)
		if err := <-resized; reasonOf(err) != lifecycle.Expired {
			t.Errorf("the resize: got error %v, want that its lifetime was over", err)
		}
		if _, err := a.Get(sb.ID); reasonOf(err) != lifecycle.Expired {
			t.Errorf("got error %v, want that its lifetime was over", err)
		}
	})
}

// TestLastingResizeIsNotStored checks that a resize whose record cannot be stored says so, and that it has taken
// place on this server.
func TestLastingResizeIsNotStored(t *testing.T) {
	t.Parallel()
	failure := errors.New("the API server is gone")
	for name, tt := range map[string]struct {
		change func(c *cluster, id string)
		want   error
		text   string
	}{
		"cannot be stored": {func(c *cluster, _ string) { c.fail = failure }, failure, "cannot be stored"},
		"cannot be read":   {func(c *cluster, id string) { c.records[id] = engine.Record{Sealed: []byte("{}")} }, nil, "cannot be read"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{records: map[string]engine.Record{}}
			r := c.registry(t)
			defer end(t, r)
			sb := create(t, r, time.Hour)
			synctest.Wait()
			tt.change(c, sb.ID)
			err := r.Resize(t.Context(), sb.ID, engine.Resources{CPUs: 2})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: got error %v", name, err)
			}
			if got, err := r.Get(sb.ID); err != nil || got.State != lifecycle.Running || got.Resources.CPUs != 2 {
				t.Errorf("%s: got %+v and error %v, want that it runs with 2 processors", name, got, err)
			}
		})
	}
}

// TestCloseDuringTakeover checks that another server can change the record of a sandbox while its registry closes, and saves
// other sandboxes first. The race detector looks at it.
func TestCloseDuringTakeover(t *testing.T) {
	t.Parallel()
	durable, err := store.Open(t.Context(), t.TempDir())
	must.Do(t, err)
	c := &cluster{records: map[string]engine.Record{}}
	release := make(chan struct{})
	var saving atomic.Int64
	plain := &lifecycletest.Fakes{Hook: func(_ context.Context, _ string, op lifecycletest.Operation) error {
		if op == lifecycletest.Healthy { // with which a pause begins
			saving.Add(1)
			<-release
		}
		return nil
	}}
	var ids []string
	a := c.registry(t, func(o *lifecycle.Options) {
		lasting := o.Launch
		o.Store, o.MaxSandboxes = durable, 3
		o.Launch = func(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
			if len(ids) < 2 {
				return plain.Launch(ctx, spec)
			}
			return lasting(ctx, spec)
		}
	})
	for range 3 {
		sb, err := a.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, AutoPause: true})
		must.Do(t, err)
		ids = append(ids, sb.ID)
	}
	b := c.registry(t)
	closed := make(chan error, 1)
	go func() { closed <- end(t, a) }()
	patience.Until(t, "two sandboxes are being saved", func() bool { return saving.Load() == 2 })
	for n := range 100 { // the third waits for them
		must.Do(t, b.SetLifetime(ids[2], time.Duration(n+1)*time.Minute))
	}
	close(release)
	must.Do(t, errors.Join(patience.Receive(t, "the end of the registry", closed), end(t, b), durable.Close()))
}

// TestLastingFailures checks faults of the engine that lose no sandbox, and that they are logged.
func TestLastingFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}, home: true}
		log, logged := logging()
		r := c.registry(t, logged)
		sb := create(t, r, time.Hour)
		synctest.Wait() // the registry has seen the first record
		c.fail = errors.New("the API server is gone")
		must.Do(t, r.Pause(t.Context(), sb.ID, lifecycle.PauseOptions{}))
		if got, err := r.Get(sb.ID); err != nil || got.State != lifecycle.Paused {
			t.Errorf("got %+v and error %v, want it paused", got, err)
		}
		if !strings.Contains(log.String(), "the time of a pause could not be stored") {
			t.Errorf("logged %s", log.String())
		}
		c.fail = nil
		for what, call := range map[string]func() error{
			"a lifetime":   func() error { return r.SetLifetime(sb.ID, 2*time.Hour) },
			"an extension": func() error { return r.Extend(sb.ID, 2*time.Hour) },
			"rules":        func() error { return r.SetEgress(sb.ID, lifecycle.Network{}, nil) },
		} {
			if err := call(); !isNotFound(err) {
				t.Errorf("%s of a paused sandbox: got error %v", what, err)
			}
		}
		c.boxes[0].leaves = errors.New("its connection is stuck")
		must.Do(t, end(t, r))
		if !strings.Contains(log.String(), "sandbox not left cleanly") {
			t.Errorf("logged %s", log.String())
		}
		if len(c.records) != 1 {
			t.Errorf("the records are %v, want the one of the sandbox", c.records)
		}
	})
}

// TestAdoptFails checks that a sandbox is not adopted by a registry that cannot open it, or that closes
// meanwhile, and that it goes on.
func TestAdoptFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		first := c.registry(t)
		defer end(t, first)
		sb := create(t, first, time.Hour)
		f := &lifecycletest.Fakes{}
		r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir())})
		failure := errors.New("no connection")
		must.Is(t, r.Adopt(sb.ID, c.records[sb.ID], func(lifecycle.Spec) (lifecycle.Lasting, error) { return nil, failure }), failure)
		if running, _ := r.Count(); running != 0 {
			t.Errorf("%d sandboxes run", running)
		}
		var opened *box
		left := errors.New("left")
		err := r.Adopt(sb.ID, c.records[sb.ID], func(spec lifecycle.Spec) (lifecycle.Lasting, error) {
			i, err := f.Launch(t.Context(), spec)
			must.Do(t, err)
			opened = c.see(sb.ID, i)
			opened.leaves = left
			return opened, r.Close()
		})
		if !errors.Is(err, lifecycle.ErrClosed) || !errors.Is(err, left) || !opened.Ended() {
			t.Errorf("got error %v, and left: %v, want ErrClosed and the error of Leave", err, opened.Ended())
		}
		if running, _ := r.Count(); running != 0 || len(c.records) != 1 {
			t.Errorf("%d run, and the records are %v", running, c.records)
		}
	})
}

// TestJoinEnds checks that a repeated request does not wait longer than its client, or than its
// server lives, for the sandbox that another server makes.
func TestJoinEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stop func(r *lifecycle.Registry, cancel context.CancelFunc)
		want error
	}{
		"the client":       {func(_ *lifecycle.Registry, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"the server":       {func(r *lifecycle.Registry, _ context.CancelFunc) { _ = r.Close() }, lifecycle.ErrClosed},
		"the other failed": {func(*lifecycle.Registry, context.CancelFunc) {}, engine.ErrExists},
	} {
		synctest.Test(t, func(t *testing.T) {
			ended := 0
			r := lifecycle.New(lifecycle.Options{
				Store: store.Temporary(t.TempDir()), IDOf: func(string) string { return "i0123456789abcdefghij" }, Ended: func(string) { ended++ },
				Launch: func(context.Context, lifecycle.Spec) (lifecycle.Instance, error) {
					return nil, fmt.Errorf("kubernetes: %w", engine.ErrExists)
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			joined := make(chan error, 1)
			go func() {
				_, err := r.CreateOnce(ctx, "key", lifecycle.Request{Template: base, Lifetime: time.Hour})
				joined <- err
			}()
			synctest.Wait()
			tt.stop(r, cancel)
			if err := <-joined; !errors.Is(err, tt.want) {
				t.Errorf("%s: got error %v, want %v", name, err, tt.want)
			}
			if want := map[bool]int{true: 0, false: 1}[name == "the server"]; ended != want {
				t.Errorf("%s: got told of %d ends, want %d", name, ended, want)
			}
			must.Do(t, end(t, r))
		})
	}
}

// TestExists checks a launch that finds a sandbox of the same id.
func TestExists(t *testing.T) {
	t.Parallel()
	const id = "i0123456789abcdefghij"
	f := &lifecycletest.Fakes{}
	ended := 0
	r := lifecycle.New(lifecycle.Options{
		Store: store.Temporary(t.TempDir()), Launch: f.Launch, Ended: func(string) { ended++ }, IDOf: func(string) string { return id },
	})
	f.Fail(engine.ErrExists)
	q := lifecycle.Request{Template: base, Lifetime: time.Hour}
	_, err := r.Create(t.Context(), q) // it has no key by which the other one could be its own
	if _, failed := errors.AsType[*lifecycle.LaunchError](err); !failed || !errors.Is(err, engine.ErrExists) || ended != 0 {
		t.Errorf("got error %v and %d ends, want a *LaunchError and that the other goes on", err, ended)
	}
	f.Fail(nil)
	c := &cluster{records: map[string]engine.Record{}}
	other := c.registry(t)
	made := create(t, other, time.Hour)
	record := c.records[made.ID]
	must.Do(t, end(t, other))
	must.Do(t, r.Adopt(id, record, func(spec lifecycle.Spec) (lifecycle.Lasting, error) {
		i, err := f.Launch(t.Context(), spec)
		return c.see(id, i), err
	}))
	f.Fail(engine.ErrExists)
	_, err = r.CreateOnce(t.Context(), "key", q) // the sandbox was made by a request without a key
	must.Is(t, err, lifecycle.ErrKeyReused)
	must.Do(t, end(t, r))
}

// TestUnchangedRecordIsNotStored checks that a call that changes nothing stores nothing.
func TestUnchangedRecordIsNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		r := c.registry(t)
		defer end(t, r)
		sb := create(t, r, time.Hour)
		c.fail = errors.New("the API server is gone")
		must.Do(t, r.Extend(sb.ID, time.Minute)) // it lives longer already
		must.Is(t, r.Extend(sb.ID, 2*time.Hour), c.fail)
		c.fail = nil
	})
}

// TestShortenedElsewhere checks that a registry ends a sandbox at the time that another registry, which is
// closed since, has set.
func TestShortenedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{records: map[string]engine.Record{}}
		a := c.registry(t)
		defer end(t, a)
		sb := create(t, a, time.Hour)
		b := c.registry(t)
		must.Do(t, b.SetLifetime(sb.ID, time.Minute))
		synctest.Wait()
		must.Do(t, end(t, b))
		<-time.After(time.Minute)
		synctest.Wait()
		if !c.boxes[0].Ended() {
			t.Error("it lives on after its new lifetime")
		}
		if _, err := a.Get(sb.ID); reasonOf(err) != lifecycle.Expired {
			t.Errorf("got error %v, want that its lifetime was over", err)
		}
	})
}
