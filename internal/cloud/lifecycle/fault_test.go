package lifecycle_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
)

// whole is the complete state of a sandbox in a server.
type whole struct {
	Sandboxes     []*lifecycle.Sandbox
	Store         storetest.State
	Files, Knows  string // contents of its fake
	Paused, Ended bool
}

func (v *server) whole(t *testing.T, id string) whole {
	t.Helper()
	all := v.List(everything)
	w := whole{Sandboxes: all, Store: storetest.Take(t, v.store, v.dir)}
	if f := v.fakes.Fake(id); f != nil {
		w.Files, w.Knows, w.Paused, w.Ended = f.Files(), f.Knows(), f.Paused(), f.Ended()
	}
	for _, wrong := range v.Unbalanced() {
		t.Error(wrong)
	}
	return w
}

// forgetful returns a server whose store ends with it.
func forgetful(t *testing.T) *server {
	t.Helper()
	v := &server{dir: t.TempDir()}
	v.store = store.Temporary(v.dir)
	v.stage = newStage(t, func(o *lifecycle.Options) { o.Store = v.store; shared(o) })
	v.stage.dir = v.dir
	return v
}

// diskCase is an operation on a sandbox.
type diskCase struct {
	before *lifecycle.PauseOptions // pause before the operation; nil: none
	paused bool                    // the sandbox stays paused; false: it is resumed
	kills  bool                    // after an error of the operation, the processes of the sandbox have ended
	do     func(t *testing.T, v *server, id string) error
}

// TestDiskFails makes the disk fail at each change of an operation. Either the operation fails, and
// the sandbox, its records and its files are unchanged. Or it succeeds as without the fault. In
// both cases the next server finds the state that this server reported.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	full, files := lifecycle.PauseOptions{}, lifecycle.PauseOptions{DropMemory: true}
	pause := func(o lifecycle.PauseOptions) func(*testing.T, *server, string) error {
		return func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, o) }
	}
	snapshot := func(memory bool) func(*testing.T, *server, string) error {
		return func(t *testing.T, v *server, id string) error {
			made, err := v.Snapshot(t.Context(), id, &memory)
			v.layers.Release(made.Layers...)
			return err
		}
	}
	for name, tt := range map[string]diskCase{
		"a pause":                 {do: pause(full)},
		"a pause to files":        {do: pause(files)},
		"a second pause":          {before: &full, do: pause(full)},
		"a second pause to files": {before: &full, do: pause(files)},
		"a boot": {before: &full, paused: true, do: func(t *testing.T, v *server, id string) error {
			_, err := v.Resume(t.Context(), id, reboot)
			return err
		}},
		"a snapshot":               {do: snapshot(false)},
		"a snapshot with memory":   {do: snapshot(true)},
		"a snapshot of one paused": {before: &full, do: snapshot(true)},
		"a kill":                   {before: &full, paused: true, kills: true, do: func(_ *testing.T, v *server, id string) error { return v.Kill(id) }},
		"a fork": {do: func(t *testing.T, v *server, id string) error {
			forks, err := v.Fork(t.Context(), id, 1, time.Hour, nil)
			for _, f := range forks {
				if err = f.Err; err == nil {
					err = v.Kill(f.Sandbox.ID)
				}
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			for _, durable := range []bool{true, false} {
				for n := 1; diskFails(t, n, durable, tt); n++ {
					tried++
				}
			}
			if tried == 0 {
				t.Error("there was nothing that could fail")
			}
		})
	}
}

// diskFails runs the operation with a fault at the n-th change, and checks the result. It returns
// false if the operation made fewer than n changes.
func diskFails(t *testing.T, n int, durable bool, c diskCase) bool {
	t.Helper()
	v := forgetful(t)
	if durable {
		v = serve(t, t.TempDir(), shared)
	}
	v.fakes.SavesMemory = true
	id := v.taught(t)
	if c.before != nil {
		v.pause(t, id, *c.before)
		if !c.paused {
			resume(t, v, id)
		}
	}
	was := v.whole(t, id)
	fault := storetest.FailNth(v.store, n)
	err := c.do(t, v, id)
	storetest.Mend(v.store)
	is := v.whole(t, id)
	switch {
	case errors.Is(err, storetest.ErrFault):
		if c.kills { // its processes have ended
			was.Ended, was.Sandboxes[0].Memory = true, is.Sandboxes[0].Memory
		}
		if diff := cmp.Diff(was, is, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("not as before, after an error because it could not %s (-before +after):\n%s", fault.Which(), diff)
		}
		if err := c.do(t, v, id); err != nil {
			t.Errorf("again, without the fault at %q: %v", fault.Which(), err)
		}
	case err != nil:
		t.Errorf("got error %v when it could not %s, want that of the disk", err, fault.Which())
	}
	want, gone := v.Get(id)
	if durable {
		v.crash(t)
		v = serve(t, v.dir, shared)
		sb, err := v.Get(id)
		if kept := gone == nil && (want.State == lifecycle.Paused || c.before != nil); kept != (err == nil) {
			t.Errorf("after %q the next server has %v and error %v, where this one had %v and %v", fault.Which(), sb.State, err, want.State, gone)
		}
		for _, entry := range storetest.Take(t, v.store, v.dir).Unnamed {
			t.Errorf("after %q the next server has %s", fault.Which(), entry)
		}
	}
	if err == nil && !durable { // closing a temporary store removes the rest
		if err := errors.Join(end(t, v.Registry), v.store.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(v.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %q: got error %v for the directory of the store, want it gone", fault.Which(), err)
		}
	}
	v.end(t)
	return fault.Which() != ""
}
