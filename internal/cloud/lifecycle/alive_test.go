package lifecycle_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// steps are calls of one registry. Each call must return.
type steps []struct {
	name string
	do   func() error
}

// run checks that each call returns, and that no lock of a registry is held soon after it. Otherwise it ends
// the whole program, because the clean-up of the test would wait for the lock, too.
func (s steps) run(t *testing.T, registries ...*lifecycle.Registry) {
	t.Helper()
	for _, call := range s {
		stuck := time.AfterFunc(patience.Limit/4, func() { panic("waited in vain for the end of " + call.name + ", or for a lock that it keeps") })
		must.Do(t, call.do())
		for _, r := range registries {
			for r.Locked() {
				runtime.Gosched()
			}
		}
		stuck.Stop()
	}
}

// wants returns an error unless err matches the wanted one.
func wants(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return errors.Join(errors.New("got another error"), err)
}

// TestEachCallReturns checks that no call keeps a lock of the registry. It runs before the tests that
// would wait for such a lock.
func TestEachCallReturns(t *testing.T) { //nolint:paralleltest // see above
	v := serve(t, t.TempDir(), shared)
	broken := errors.New("broken")
	var id string
	q := lifecycle.Request{Template: base, Lifetime: time.Hour}
	made := func(sb lifecycle.Sandbox, err error) error {
		id = sb.ID
		return err
	}
	events, all := v.Events(), func(*lifecycle.Event) bool { return true }
	steps{
		{"Create", func() error { return made(v.Create(t.Context(), q)) }},
		{"Get", func() error { _, err := v.Get(id); return err }},
		{"List", func() error { v.List(everything); return nil }},
		{"Page", func() error { v.Page(lifecycle.Query{Running: true}); return nil }},
		{"Running", func() error { v.Running(lifecycle.Query{}); return nil }},
		{"Count", func() error { v.Count(); return nil }},
		{"Ended", func() error { v.Ended(id); return nil }},
		{"Asks", func() error { _, err := v.Asks(id); return err }},
		{"Refused", func() error { v.Refused(id, "a.test", 443, ""); return nil }},
		{"Latest", func() error { events.Latest(all, 0, 1, false); return nil }},
		{"After", func() error { events.After(t.Context(), 0, all, 1); return nil }},
		{"First", func() error { events.First(); return nil }},
		{"Number", func() error { events.Number(events.ID(1)); return nil }},
		{"SetLifetime", func() error { return v.SetLifetime(id, time.Hour) }},
		{"SetEgress", func() error { return v.SetEgress(id, lifecycle.Network{}, &network.Rules{}) }},
		{"Resize", func() error { return v.Resize(t.Context(), id, engine.Resources{CPUs: 2}) }},
		{"Fork", func() error {
			forks, err := v.Fork(t.Context(), id, 1, time.Hour, nil)
			if err == nil {
				err = errors.Join(forks[0].Err, v.Kill(forks[0].Sandbox.ID))
			}
			return err
		}},
		{"Pause that fails", func() error {
			v.fail(lifecycletest.Save, broken)
			defer v.fail(lifecycletest.Save, nil)
			return wants(v.Pause(t.Context(), id, lifecycle.PauseOptions{}), broken)
		}},
		{"Pause", func() error { return v.Pause(t.Context(), id, lifecycle.PauseOptions{}) }},
		{"Connect", func() error { _, _, err := v.Connect(t.Context(), id, day); return err }},
		{"Pause to files", func() error { return v.Pause(t.Context(), id, lifecycle.PauseOptions{DropMemory: true}) }},
		{"Resume", func() error { _, err := v.Resume(t.Context(), id, day); return err }},
		{"death", func() error {
			v.fakes.Fake(id).Die(broken)
			patience.Until(t, "it is paused", func() bool { sb, err := v.Get(id); return err == nil && sb.State == lifecycle.Paused })
			return nil
		}},
		{"Kill that fails", func() error {
			v.store.Wait()
			storetest.FailNth(v.store, 1)
			defer storetest.Mend(v.store)
			return wants(v.Kill(id), storetest.ErrFault)
		}},
		{"Kill", func() error { return v.Kill(id) }},
		{"CreateOnce", func() error { return made(v.CreateOnce(t.Context(), "key", q)) }},
		{"CreateOnce again", func() error { return made(v.CreateOnce(t.Context(), "key", q)) }},
		{"Advance", func() error { v.Advance(2 * time.Hour); return nil }},
		{"Create that fails", func() error {
			v.fakes.Fail(broken)
			_, err := v.CreateOnce(t.Context(), "another", q)
			return wants(err, broken)
		}},
		{"Close", v.Close},
	}.run(t, v.Registry)
	must.Do(t, v.store.Close())
}

// TestEachCallReturnsAmongRegistries is like TestEachCallReturns, for sandboxes that outlive their
// registry.
func TestEachCallReturnsAmongRegistries(t *testing.T) { //nolint:paralleltest // see above
	c := &cluster{records: map[string]engine.Record{}, home: true}
	a := c.registry(t)
	sb := create(t, a, time.Hour)
	var b *lifecycle.Registry
	steps{{"Adopt", func() error { b = c.registry(t); return nil }}}.run(t, a)
	see := func(r *lifecycle.Registry, what string, ok func(lifecycle.Sandbox) bool) func() error {
		return func() error {
			patience.Until(t, what, func() bool { got, err := r.Get(sb.ID); return err == nil && ok(got) })
			return nil
		}
	}
	paused := func(sb lifecycle.Sandbox) bool { return sb.State == lifecycle.Paused }
	steps{
		{"SetLifetime", func() error { return a.SetLifetime(sb.ID, 2*time.Hour) }},
		{"the other follows", see(b, "it lives longer", func(got lifecycle.Sandbox) bool { return got.EndAt.After(sb.EndAt.Add(time.Minute)) })},
		{"Pause", func() error { return a.Pause(t.Context(), sb.ID, lifecycle.PauseOptions{}) }},
		{"the other follows the pause", see(b, "it is paused", paused)},
		{"Resume", func() error { _, err := b.Resume(t.Context(), sb.ID, day); return err }},
		{"the first follows the resume", see(a, "it runs", func(got lifecycle.Sandbox) bool { return got.Runs() })},
		{"Close of the other", b.Close},
		{"Kill", func() error { return a.Kill(sb.ID) }},
		{"Close", a.Close},
	}.run(t, a, b)
}
