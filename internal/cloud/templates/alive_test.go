package templates

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// unbalanced returns what is wrong in an index: a number of builds, a name or an entry of a list that does
// not follow from the templates.
func (x *index) unbalanced() error {
	builds, names, listed, snapshots := 0, 0, 0, 0
	for id, t := range x.byID {
		builds += len(t.Builds)
		if t.FullName() != "" {
			names++
		}
		if !t.variant() {
			listed++
		}
		for tag := range t.Tags {
			if build, _ := t.Tagged(tag); build.Sandbox != "" {
				snapshots++
			}
		}
		if name := t.FullName(); t.ID != id || name != "" && x.byName[name] != t {
			return fmt.Errorf("template %s is not found by its id or its name %q", id, name)
		}
	}
	got, want := []int{x.builds, len(x.byName), len(x.listed), len(x.snapshots)}, []int{builds, names, listed, snapshots}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("got %v builds, names, templates and snapshots, want %v", got, want)
	}
	return nil
}

// TestLocksAreReleased checks that no call keeps the lock, and that the index is right after each. It runs
// before the tests that would wait for the lock.
func TestLocksAreReleased(t *testing.T) { //nolint:paralleltest // see above
	st := store.Temporary(t.TempDir())
	r := Open(Options{Store: st, Layers: layers.Open(layers.Options{Store: st}), Images: []Image{{Name: "tools", Reference: "r.test/tools:1"}}})
	job, none, base := ParseReference("job"), ParseReference("none"), ParseReference("base")
	unused := func(string) bool { return false }
	var made Template
	var build Build
	request := func() (err error) {
		if made, build, err = r.Request(job, nil, Build{}); err == nil {
			err = r.CheckName(&job)
		}
		return err
	}
	broken := errors.New("it is refused")
	refused := func(err error) error {
		if _, ok := errors.AsType[*Error](err); !ok && !errors.Is(err, storetest.ErrFault) {
			return errors.Join(broken, err)
		}
		return nil
	}
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"CheckName of a new one", func() error { return r.CheckName(&job) }},
		{"CheckName of a built-in one", func() error { return refused(r.CheckName(&base)) }},
		{"Request", request},
		{"Begin", func() error { return r.Begin(made.ID, build.ID) }},
		{"Begin again", func() error { return refused(r.Begin(made.ID, build.ID)) }},
		{"Finish", func() error { return r.Finish(made.ID, build.ID, Content{Engine: engine.Room}) }},
		{"Request again", request},
		{"Fail", func() error { return r.Fail(made.ID, build.ID, Failure{}) }},
		{"Add", func() error { _, err := r.Add(&job, Build{Sandbox: "i1"}); return err }},
		{"Add without a name", func() error { _, err := r.Add(nil, Build{Sandbox: "i1"}); return err }},
		{"Add of a built-in one", func() error { _, err := r.Add(&base, Build{}); return refused(err) }},
		{"Add that fails", func() error {
			storetest.FailNth(st, 1)
			defer storetest.Mend(st)
			_, err := r.Add(&job, Build{})
			return refused(err)
		}},
		{"Assign", func() error { _, _, err := r.Assign(job, []string{"a", "b"}); return err }},
		{"Unassign", func() error { return r.Unassign(job, []string{"a"}) }},
		{"Publish", func() error { _, err := r.Publish(job, true); return err }},
		{"Publish of none", func() error { _, err := r.Publish(none, true); return refused(err) }},
		{"Find", func() error { _, _, err := r.Find(job); return err }},
		{"Find of none", func() error { _, _, err := r.Find(none); return refused(err) }},
		{"Get", func() error { _, err := r.Get(job); return err }},
		{"Get of none", func() error { _, err := r.Get(none); return refused(err) }},
		{"All", func() error { r.All(); return nil }},
		{"Snapshots", func() error { r.Snapshots(nil, 1, nil); return nil }},
		{"HasMemory", func() error { r.HasMemory(build); return nil }},
		{"Spawn", func() error { r.Spawn(made.ID); r.Spawn("none"); return nil }},
		{"Spawned", func() error { r.Spawned(made.ID); return nil }},
		{"Delete of one in use", func() error { return refused(r.Delete(job, func(string) bool { return true })) }},
		{"Delete of none", func() error { return refused(r.Delete(none, unused)) }},
		{"Delete", func() error { return r.Delete(job, unused) }},
	} {
		if err := call.do(); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
		if !r.mu.TryLock() {
			t.Fatalf("%s keeps the lock", call.name)
		}
		if err := r.index.unbalanced(); err != nil {
			t.Errorf("after %s: %v", call.name, err)
		}
		r.mu.Unlock()
	}
	must.Do(t, st.Close())
}

// TestNothingIsStoredAgain checks that a start changes only templates with an unfinished build in the store.
func TestNothingIsStoredAgain(t *testing.T) {
	t.Parallel()
	st := store.Temporary(t.TempDir())
	open := func() *Registry {
		return Open(Options{Store: st, Layers: layers.Open(layers.Options{Store: st})})
	}
	r, job := open(), ParseReference("job")
	made, err := r.Add(&job, Build{Sandbox: "i1"})
	must.Do(t, err)
	if last := made.Latest(); last.Status != Ready || !last.FinishedAt.Equal(last.CreatedAt) || last.CreatedAt.IsZero() {
		t.Errorf("got the snapshot %+v, want it ready since it was made", last)
	}
	for what, want := range map[string]store.Change{"all are ready": "", "one is waiting": store.PutRecord} {
		if want != "" {
			_, _, err := r.Request(job, nil, Build{})
			must.Do(t, err)
		}
		fault := storetest.FailNth(st, 1)
		r = open()
		storetest.Mend(st)
		if _, err := r.Get(job); fault.Which() != want || (err != nil) != (want != "") {
			t.Errorf("%s: the start did %q, and the template is there with error %v, want %q", what, fault.Which(), err, want)
		}
		r = open()
	}
	must.Do(t, st.Close())
}

// TestDirectoriesOfBuiltIn checks where processes of the built-in templates begin.
func TestDirectoriesOfBuiltIn(t *testing.T) {
	t.Parallel()
	for _, one := range builtIn() {
		want := ""
		if strings.HasPrefix(one.Name, "code-interpreter-v1") {
			want = guest.UserWorkdir
		}
		if got := one.Latest(); got.Workdir != want {
			t.Errorf("%s: got the directory %q, want %q", one.Name, got.Workdir, want)
		}
	}
}
