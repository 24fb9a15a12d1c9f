package templates_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// layer adds a layer that the caller holds.
func (s *server) layer(t *testing.T) []string {
	t.Helper()
	id, err := s.layers.Add(func(string, bool) (bool, error) { return false, nil })
	must.Do(t, err)
	return []string{id}
}

// TestDiskFails makes the disk fail at each call that changes a template. The call then returns the error and
// has changed nothing, here and after a restart, and holds no layer that was meant for the build. A template
// that was returned earlier never changes.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	job := templates.ParseReference("job")
	for what, do := range map[string]func(s *server, waiting, building [2]string, layers []string) error{
		"add": func(s *server, _, _ [2]string, layers []string) error {
			_, err := s.Add(&job, templates.Build{Content: templates.Content{Layers: layers}})
			return err
		},
		"request": func(s *server, _, _ [2]string, _ []string) error {
			_, _, err := s.Request(job, nil, templates.Build{})
			return err
		},
		"begin": func(s *server, waiting, _ [2]string, _ []string) error { return s.Begin(waiting[0], waiting[1]) },
		"finish": func(s *server, _, building [2]string, layers []string) error {
			return s.Finish(building[0], building[1], templates.Content{Layers: layers})
		},
		"fail": func(s *server, waiting, _ [2]string, _ []string) error {
			return s.Fail(waiting[0], waiting[1], templates.Failure{})
		},
		"publish": func(s *server, _, _ [2]string, _ []string) error { _, err := s.Publish(job, true); return err },
		"assign": func(s *server, _, _ [2]string, _ []string) error {
			_, _, err := s.Assign(job, []string{"a"})
			return err
		},
		"unassign": func(s *server, _, _ [2]string, _ []string) error { return s.Unassign(job, []string{"other"}) },
		"delete": func(s *server, _, _ [2]string, _ []string) error {
			return s.Delete(job, func(string) bool { return false })
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := serve(t, dir)
			made := s.snapshot(t, "job")
			_, _, err := s.Assign(job, []string{"other"})
			must.Do(t, err)
			_, waiting, err := s.Request(job, nil, templates.Build{})
			must.Do(t, err)
			_, building, err := s.Request(job, nil, templates.Build{})
			must.Do(t, errors.Join(err, s.Begin(made.ID, building.ID)))
			call := func(layers []string) error {
				return do(s, [2]string{made.ID, waiting.ID}, [2]string{made.ID, building.ID}, layers)
			}
			was := s.All()
			before, err := json.Marshal(was)
			must.Do(t, err)
			spare := s.layer(t)
			storetest.FailNth(s.store, 1)
			must.Is(t, call(spare), storetest.ErrFault)
			storetest.Mend(s.store)
			if diff := cmp.Diff(was, s.All()); diff != "" {
				t.Errorf("after the fault (-want +got):\n%s", diff)
			}
			must.Do(t, call(s.layer(t)))
			if after, err := json.Marshal(was); err != nil || string(after) != string(before) {
				t.Errorf("what was returned before has changed from %s to %s", before, after)
			}
			if cmp.Equal(was, s.All()) {
				t.Error("the call has changed nothing")
			}
			changed := s.All()
			s = s.restart(t, dir)
			for i := range changed {
				pending := func(b templates.Build) bool { return b.Status == templates.Waiting || b.Status == templates.Building }
				if slices.ContainsFunc(changed[i].Builds, pending) {
					continue // the restart ends them
				}
				if diff := cmp.Diff(changed[i], s.All()[i]); diff != "" {
					t.Errorf("after a restart (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestFailedAddHoldsNothing checks that the layers of a build are released if it could not be added.
func TestFailedAddHoldsNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	job := templates.ParseReference("job")
	s.snapshot(t, "job")
	_, building, err := s.Request(job, nil, templates.Build{})
	must.Do(t, err)
	made, err := s.Get(job)
	must.Do(t, errors.Join(err, s.Begin(made.ID, building.ID)))
	for what, do := range map[string]func(layers []string) error{
		"add": func(layers []string) error {
			_, err := s.Add(&job, templates.Build{Content: templates.Content{Layers: layers}})
			return err
		},
		"finish": func(layers []string) error { return s.Finish(made.ID, building.ID, templates.Content{Layers: layers}) },
	} {
		layer := s.layer(t)
		storetest.FailNth(s.store, 1)
		err := do(layer)
		storetest.Mend(s.store)
		if n := s.kept(t); !errors.Is(err, storetest.ErrFault) || n != 1 {
			t.Errorf("%s: got error %v and %d layers, want that of the disk, and the layer of the other build", what, err, n)
		}
	}
}

// TestRefusedNames checks the limits of names and tags, and which templates give away their name.
func TestRefusedNames(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	made := s.snapshot(t, "job")
	for text, want := range map[string]templates.Kind{
		"job": -1, "local/other": -1, strings.Repeat("a", 128): -1, "other:" + strings.Repeat("a", 128): -1, "other:v1.0_a-b": -1, "a_b-0": -1,
		strings.Repeat("a", 129): templates.Invalid, "other:" + strings.Repeat("a", 129): templates.Invalid, "team/other": templates.Invalid, "a.b": templates.Invalid,
		"other:00000000-0000-4000-8000-000000000009": templates.Invalid,
		"base": templates.Invalid, "base-room": templates.Invalid, "localbasetemplate000": templates.Invalid, made.ID: templates.Conflict,
	} {
		ref := templates.ParseReference(text)
		_, _, requested := s.Request(ref, nil, templates.Build{})
		for _, err := range []error{s.CheckName(&ref), requested} {
			if err == nil && want < 0 {
				continue
			}
			if err == nil || want < 0 || kindOf(t, err) != want {
				t.Errorf("%.40s: got %v, want a refusal of the kind %d (-1: none)", text, err, want)
			}
		}
	}
}

// TestSpawned checks the counts of the sandboxes that were made from a template, and which builds have memory.
func TestSpawned(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	job := s.snapshot(t, "job")
	began := time.Now()
	for range 2 {
		s.Spawn(job.ID)
	}
	s.Spawn("none")
	if got := s.Spawned(job.ID); got.Count != 2 || got.Last.Before(began.Round(0)) {
		t.Errorf("got %+v, want two, the last one now", got)
	}
	must.Do(t, s.Delete(templates.ParseReference("job"), func(string) bool { return false }))
	for _, id := range []string{job.ID, "none"} {
		if got := s.Spawned(id); got != (templates.Spawned{}) {
			t.Errorf("%s: got %+v, want none", id, got)
		}
	}
	memory, err := s.layers.AddMemory(func(string) error { return nil })
	must.Do(t, err)
	for want, layers := range map[bool][]string{false: s.layer(t), true: append(s.layer(t), memory)} {
		if got := s.HasMemory(templates.Build{Content: templates.Content{Layers: layers}}); got != want {
			t.Errorf("%q: got memory %v, want %v", layers, got, want)
		}
	}
}

// TestStoredForms checks records that this version does not write: it reads those whose builds are in another
// order, and leaves all others alone.
func TestStoredForms(t *testing.T) {
	t.Parallel()
	const builds = `"Builds":[{"ID":"new","Status":"ready","CreatedAt":"2026-01-02T00:00:00Z"},{"ID":"old","Status":"ready","CreatedAt":"2026-01-01T00:00:00Z"}]`
	for record, want := range map[string]string{
		`{"Version":2,"Template":{"ID":"a","Name":"a",` + builds + `,"Tags":{"default":{"Build":"old"},"v1":{"Build":"new"}}}}`: "[old new]",
		`{"Version":0,"Template":{"ID":"a","Name":"a",` + builds + `}}`:                                                         "",
		`{"Version":3,"Template":{"ID":"a","Name":"a",` + builds + `}}`:                                                         "",
		`{"Version":2,"Template":{"ID":"a","Name":"a","BuiltIn":true,` + builds + `}}`:                                          "",
		`{"Version":2,"Template":{"ID":"a","Name":"a","Builds":[{"ID":"x","Status":"waiting"}],"Tags":{"a":{"Build":"x"}}}}`:    "",
	} {
		dir := t.TempDir()
		s := serve(t, dir)
		_, err := s.store.Put(store.Templates, "a", []byte(record), "")
		must.Do(t, err)
		left := s.layer(t)
		s = s.restart(t, dir)
		got, err := s.Get(templates.ParseReference("a"))
		var ids []string
		for _, b := range got.Builds {
			ids = append(ids, b.ID)
		}
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(ids) != want {
			t.Errorf("%s: got the builds %v and error %v, want %q", record, ids, err, want)
		}
		if _, err := s.layers.Hold(left...); (err == nil) != (want == "") {
			t.Errorf("%s: got %v, want layers to stay only if it cannot be read", record, err)
		}
	}
}

// TestRestartFails checks that a template whose builds cannot be ended in the store is left alone, with all layers.
func TestRestartFails(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	job := templates.ParseReference("job")
	s.snapshot(t, "job")
	_, _, err := s.Request(job, nil, templates.Build{})
	must.Do(t, err)
	set := layers.Open(layers.Options{Store: s.store})
	storetest.FailNth(s.store, 1)
	next := templates.Open(templates.Options{Store: s.store, Layers: set})
	storetest.Mend(s.store)
	set.Sweep()
	if _, err := next.Get(job); err == nil || s.kept(t) != 1 {
		t.Errorf("got error %v and %d layers, want neither the template nor a removed layer", err, s.kept(t))
	}
	set = layers.Open(layers.Options{Store: s.store})
	got, err := templates.Open(templates.Options{Store: s.store, Layers: set}).Get(job)
	must.Do(t, err)
	if failed := got.Latest(); failed.Status != templates.Failed || failed.FinishedAt.IsZero() || failed.Failure == nil || !got.UpdatedAt.Equal(failed.FinishedAt) {
		t.Errorf("with a disk that works: got %+v, want that the build failed now", got)
	}
}

// TestFieldsOfTemplates checks the fields of built-in templates and of a new one, and those that calls change.
func TestFieldsOfTemplates(t *testing.T) {
	t.Parallel()
	st := store.Temporary(t.TempDir())
	r := templates.Open(templates.Options{
		Store: st, Layers: layers.Open(layers.Options{Store: st}), Images: []templates.Image{{Name: "tools", Reference: "r.test/tools:1"}},
	})
	made := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for name, words := range map[string]string{"base": "run commands", "base-wasm": "on the engine wasm", "tools": "r.test/tools:1"} {
		got, build, err := r.Find(templates.ParseReference(name))
		must.Do(t, err)
		if diff := cmp.Diff([]any{true, true, name, true, made, made}, []any{got.BuiltIn, got.Public, got.Name, strings.Contains(got.Description, words), got.CreatedAt, got.UpdatedAt}); diff != "" {
			t.Errorf("%s: got %q (-want +got):\n%s", name, got.Description, diff)
		}
		if build.Status != templates.Ready || !build.CreatedAt.Equal(made) || !build.FinishedAt.Equal(made) || !got.Tags["default"].CreatedAt.Equal(made) {
			t.Errorf("%s: got the build %+v", name, build)
		}
	}
	began := time.Now().Round(0)
	waits, asked, err := r.Request(templates.ParseReference("job:v1"), []string{"V2", "v1"}, templates.Build{})
	must.Do(t, err)
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	got := []any{uuid.MatchString(asked.ID), asked.Tags, asked.CreatedAt.Before(began), asked.Status, asked.FinishedAt.IsZero()}
	if diff := cmp.Diff([]any{true, []string{"v1", "v2"}, false, templates.Waiting, true}, got); diff != "" {
		t.Errorf("the build %+v (-want +got):\n%s", asked, diff)
	}
	got = []any{len(waits.ID), waits.Name, waits.CreatedAt.Before(began), waits.UpdatedAt, waits.Public, len(waits.TagNames())}
	if diff := cmp.Diff([]any{20, "job", false, asked.CreatedAt, false, 0}, got); diff != "" {
		t.Errorf("the template %+v (-want +got):\n%s", waits, diff)
	}
	_, plain, err := r.Request(templates.ParseReference("job"), nil, templates.Build{})
	if must.Do(t, err); !slices.Equal(plain.Tags, []string{"default"}) {
		t.Errorf("without a tag: got %q", plain.Tags)
	}
	for _, public := range []bool{true, false} {
		before := time.Now().Round(0)
		got, err := r.Publish(templates.ParseReference("job"), public)
		if err != nil || got.Public != public || got.UpdatedAt.Before(before) {
			t.Errorf("published %v: got %+v and error %v", public, got, err)
		}
	}
	failed := templates.Failure{Step: "2", Message: "broken", Log: []templates.Entry{{Message: "line"}}}
	must.Do(t, errors.Join(r.Begin(waits.ID, asked.ID), r.Fail(waits.ID, asked.ID, failed)))
	last, err := r.Get(templates.ParseReference("job"))
	must.Do(t, err)
	if build, _ := last.Build(asked.ID); build.Status != templates.Failed || build.FinishedAt.Before(began) || !cmp.Equal(build.Failure, &failed) {
		t.Errorf("got the failed build %+v", build)
	}
	must.Do(t, st.Close())
}

// TestResources checks that only a request with the values of a client that chose none leaves them to the machine.
func TestResources(t *testing.T) {
	t.Parallel()
	has := engine.Resources{CPUs: 8, MemoryBytes: 1 << 34, DiskBytes: 1 << 35}
	for _, tt := range []struct {
		cpus, memory int
		want         engine.Resources
	}{
		{2, 1024, has},
		{3, 1024, engine.Resources{CPUs: 3, MemoryBytes: 1 << 30, DiskBytes: 1 << 35}},
		{2, 1025, engine.Resources{CPUs: 2, MemoryBytes: 1025 << 20, DiskBytes: 1 << 35}},
	} {
		if got := (&templates.Build{CPUs: tt.cpus, MemoryMB: tt.memory, Has: has}).Resources(); got != tt.want {
			t.Errorf("%d CPUs and %d MB: got %+v, want %+v", tt.cpus, tt.memory, got, tt.want)
		}
	}
}

// TestNamedBy checks which references name a snapshot, and that a tag which is missing is not told to be that of another
// build which waits.
func TestNamedBy(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	made := s.snapshot(t, "job:v1")
	one := s.Snapshots(nil, 1, nil)[0]
	for text, want := range map[string]bool{
		"job": true, "job:v1": true, "local/job:V1": true, made.ID: true, "job:" + made.Builds[0].ID: true, one.ID(): true,
		"job:v2": false, "other": false, "other:v1": false, "team/job": false, "job:" + made.ID: false,
	} {
		ref := templates.ParseReference(text)
		if got := one.NamedBy(&ref); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	_, _, err := s.Request(templates.ParseReference("job"), []string{"v2"}, templates.Build{})
	must.Do(t, err)
	for reference, want := range map[string]bool{"job:v2": true, "job:v3": false} {
		if _, err := s.find(reference); err == nil || strings.Contains(err.Error(), "not ready yet") != want {
			t.Errorf("%s: got %v, want that it is not ready yet: %v", reference, err, want)
		}
	}
}
