package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

func isRefused(err error) bool {
	_, ok := errors.AsType[*lifecycle.RefusedError](err)
	return ok
}

func isSave(err error) bool {
	_, ok := errors.AsType[*lifecycle.SaveError](err)
	return ok
}

// TestRefusals checks calls that are refused for their arguments or for the sandbox that they name, and
// that the sandbox runs on unchanged.
func TestRefusals(t *testing.T) {
	t.Parallel()
	silent := errors.New("silent")
	unhealthy := func(err error) bool { return errors.Is(err, lifecycle.ErrUnhealthy) && errors.Is(err, silent) }
	pause := func(o lifecycle.PauseOptions) func(*server, string) error {
		return func(v *server, id string) error {
			v.fail(lifecycletest.Healthy, silent)
			return v.Pause(v.t.Context(), id, o)
		}
	}
	egress := func(n lifecycle.Network) func(*server, string) error {
		return func(v *server, id string) error { return v.SetEgress(id, n, nil) }
	}
	for name, tt := range map[string]struct {
		call func(v *server, id string) error
		is   func(error) bool
	}{
		"a pause that requires envd":    {pause(lifecycle.PauseOptions{RequireHealthy: true}), unhealthy},
		"a pause to files without envd": {pause(lifecycle.PauseOptions{DropMemory: true}), unhealthy},
		"headers without a certificate": {egress(lifecycle.Network{Headers: map[string]map[string]string{"a.test": {"A": "b"}}}), isRefused},
		"requests without a certificate": {egress(lifecycle.Network{
			DenyOut: []string{"0.0.0.0/0"}, Requests: map[string][]network.Request{"a.test": {{Path: "/"}}},
		}), isRefused},
		"questions of another": {func(v *server, _ string) error { _, err := v.Asks("iother"); return err }, isNotFound},
		"a pause without room on the disk": {func(v *server, id string) error {
			must.Do(v.t, os.RemoveAll(filepath.Join(v.dir, "new")))
			must.Do(v.t, os.WriteFile(filepath.Join(v.dir, "new"), nil, 0o600))
			return v.Pause(v.t.Context(), id, lifecycle.PauseOptions{DropMemory: true})
		}, isSave},
	} {
		v := serve(t, t.TempDir())
		id := v.create(t)
		was := v.get(t, id)
		if err := tt.call(v, id); !tt.is(err) {
			t.Errorf("%s: got error %v", name, err)
		}
		if sb := v.get(t, id); sb.State != lifecycle.Running || sb.Network != was.Network || v.fakes.Fake(id).Paused() {
			t.Errorf("%s: got %+v, want it to run as before", name, sb)
		}
		if some := v.List(func(*lifecycle.Sandbox) bool { return false }); len(some) != 0 {
			t.Errorf("%s: a list of none has %d", name, len(some))
		}
		v.fail(lifecycletest.Healthy, nil)
		v.end(t)
	}
}

// TestUnresponsiveBoots checks that a sandbox whose envd did not answer at its pause can be booted.
func TestUnresponsiveBoots(t *testing.T) {
	t.Parallel()
	v := remember(t, t.TempDir())
	id := v.taught(t)
	v.fail(lifecycletest.Healthy, errors.New("silent"))
	pauseFull(t, v, id)
	_, err := v.Resume(t.Context(), id, reboot)
	must.Do(t, err)
	v.wantTaught(t, id, "files before", "")
	v.end(t)
}

// TestEndsMeanwhile checks calls for a sandbox that ends, or is being ended, while its state changes.
func TestEndsMeanwhile(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		state string
		do    func(s *stage, id string, resumed *int)
	}{
		"a kill does not wait": {"snapshotting", func(s *stage, id string, _ *int) {
			s.fakes.Fake(id).Die(broken)
			must.Do(s.t, s.Kill(id)) // nobody releases the snapshot
		}},
		"a call waits for the end": {"snapshotting", func(s *stage, id string, _ *int) {
			s.fakes.Fake(id).Die(broken)
			called := make(chan error, 1)
			go func() { called <- s.SetLifetime(id, time.Hour) }()
			synctest.Wait()
			close(s.held[lifecycletest.Checkpoint])
			if err := <-called; reasonOf(err) != lifecycle.Died {
				s.t.Errorf("got error %v, want that it died", err)
			}
		}},
		"a pause that a kill ends does not resume": {"pausing", func(s *stage, id string, resumed *int) {
			must.Do(s.t, s.Kill(id))
			if *resumed != 0 {
				s.t.Error("the sandbox continued, although it must end")
			}
		}},
		"its end is known while it is killed": {"killing", func(s *stage, id string, _ *int) {
			if words := s.Ended(id); words != "it was killed" {
				s.t.Errorf("got %q", words)
			}
			close(s.held[lifecycletest.Close])
		}},
		"the engine closes it": {"running", func(s *stage, id string, _ *int) {
			s.fakes.Fake(id).Die(engine.ErrClosed)
			if _, err := s.Get(id); reasonOf(err) != lifecycle.Died || !strings.Contains(err.Error(), "it died: closed") {
				s.t.Errorf("got error %v, want that the engine closed it", err)
			}
		}},
		"it ends after a snapshot": {"running", func(s *stage, id string, _ *int) {
			hook := s.fakes.Hook
			s.fakes.Hook = func(ctx context.Context, of string, op lifecycletest.Operation) error {
				if op == lifecycletest.Save {
					s.fakes.Fake(id).Die(broken)
				}
				return hook(ctx, of, op)
			}
			made, err := s.Snapshot(s.t.Context(), id, nil)
			if err != nil || len(made.Layers) == 0 {
				s.t.Errorf("got %+v and error %v, want the snapshot that was finished", made, err)
			}
			s.Events() // it stays usable
			s.layers.Release(made.Layers...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id, resumed := s.create(t), 0
				hook := s.fakes.Hook
				s.fakes.Hook = func(ctx context.Context, of string, op lifecycletest.Operation) error {
					if op == lifecycletest.Resume {
						resumed++
					}
					return hook(ctx, of, op)
				}
				s.bring(t, id, tt.state)
				tt.do(s, id, &resumed)
				synctest.Wait()
				if _, err := s.Get(id); reasonOf(err) == "" {
					t.Errorf("got error %v, want that it has ended", err)
				}
				_ = s.Close()
			})
		})
	}
}

// TestWhileClosing checks what calls return while the registry closes.
func TestWhileClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		id := s.create(t)
		release := s.hold(lifecycletest.Close)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		for name, call := range map[string]func() error{
			"a lifetime": func() error { return s.SetLifetime(id, time.Hour) },
			"a kill":     func() error { return s.Kill(id) },
			"a pause":    func() error { return s.Pause(t.Context(), id, lifecycle.PauseOptions{}) },
		} {
			if err := call(); !errors.Is(err, lifecycle.ErrClosed) {
				t.Errorf("%s: got error %v, want ErrClosed", name, err)
			}
		}
		if _, err := s.Get(id); !isNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
		release()
		must.Do(t, <-closed)
	})
}

// TestCloseBoundsPauses checks that a pause that does not end does not keep the registry from closing,
// and that one that suspends is not paused, because its home would end.
func TestCloseBoundsPauses(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		v := serve(t, dirs[0])
		id := v.create(t)
		v.hold(lifecycletest.Save)
		go func() { _ = v.Pause(t.Context(), id, lifecycle.PauseOptions{}) }()
		synctest.Wait()
		begun := time.Now()
		v.end(t)
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it took %v, want a minute", took)
		}

		v = serve(t, dirs[1])
		v.fakes.Suspends = true
		v.fail(lifecycletest.Pause, errors.New("paused"))
		v.create(t, autoPause)
		v.end(t)
		if log := v.log.String(); strings.Contains(log, "not paused") {
			t.Errorf("a sandbox that suspends was to be paused: %s", log)
		}
	})
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

// TestPageBeginsAtTheLaterBound checks that a list begins at the later one of its two bounds.
func TestPageBeginsAtTheLaterBound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var all []lifecycle.Sandbox
	for range 3 {
		all = append(all, s.get(t, s.create(t)))
		s.Advance(time.Second)
	}
	for _, tt := range []struct{ startedAfter, after, want int }{{1, 0, 1}, {0, 1, 2}, {1, 1, 2}} {
		q := lifecycle.Query{Running: true, Ascending: true, StartedAfter: all[tt.startedAfter].StartedAt, After: new(all[tt.after].Position())}
		if page := s.Page(q); len(page) != 3-tt.want || page[0].ID != all[tt.want].ID {
			t.Errorf("%+v: got %d sandboxes, want those from %d on", tt, len(page), tt.want)
		}
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
	must.Do(t, other.Close())
	must.Do(t, r.Adopt(id, record, func(spec lifecycle.Spec) (lifecycle.Lasting, error) {
		i, err := f.Launch(t.Context(), spec)
		return c.see(id, i), err
	}))
	f.Fail(engine.ErrExists)
	_, err = r.CreateOnce(t.Context(), "key", q) // the sandbox was made by a request without a key
	must.Is(t, err, lifecycle.ErrKeyReused)
	must.Do(t, end(t, r))
}
