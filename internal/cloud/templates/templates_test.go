package templates_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// server is a registry in a durable store.
type server struct {
	*templates.Registry
	layers *layers.Set
	store  *store.Store
}

func serve(t *testing.T, dir string) *server {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(func() { _ = st.Close() })
	set := layers.Open(layers.Options{Store: st})
	all := templates.Open(templates.Options{Store: st, Layers: set})
	set.Sweep()
	return &server{all, set, st}
}

// restart returns a new server for the same store, as after a kill: the old server writes nothing
// at its end.
func (s *server) restart(t *testing.T, dir string) *server {
	t.Helper()
	must.Do(t, s.store.Close())
	return serve(t, dir)
}

// snapshot adds a build with one new layer.
func (s *server) snapshot(t *testing.T, name string) templates.Template {
	t.Helper()
	layer, err := s.layers.Add(func(string, bool) (bool, error) { return false, nil })
	must.Do(t, err)
	var ref *templates.Reference
	if name != "" {
		parsed := templates.ParseReference(name)
		ref = &parsed
	}
	made, err := s.Add(ref, templates.Build{Sandbox: "isource", Content: templates.Content{Layers: []string{layer}, Engine: engine.Room}})
	must.Do(t, err)
	return made
}

// kept returns the number of layers in the store.
func (s *server) kept(t *testing.T) int {
	t.Helper()
	all, err := s.store.Records(store.Layers)
	must.Do(t, err)
	return len(all)
}

func (s *server) find(reference string) (string, error) {
	_, build, err := s.Find(templates.ParseReference(reference))
	return build.ID, err
}

func kindOf(t *testing.T, err error) templates.Kind {
	t.Helper()
	refused, ok := errors.AsType[*templates.Error](err)
	if !ok {
		t.Fatalf("got %v, want an Error", err)
	}
	return refused.Kind
}

// TestFind checks that a reference names a template by name or id, and a build by tag.
func TestFind(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	unnamed, one := s.snapshot(t, ""), s.snapshot(t, "Job")
	two := s.snapshot(t, "local/job:V2.0")
	if one.ID != two.ID || len(two.Builds) != 2 {
		t.Fatalf("got %+v, want a second build of %s", two, one.ID)
	}
	base, _, err := s.Find(templates.ParseReference("base"))
	must.Do(t, err)
	for reference, want := range map[string]string{
		"base": base.Builds[0].ID, " BASE:default ": base.Builds[0].ID, base.ID: base.Builds[0].ID,
		"local/base": "", "other/base": "", "base:v1": "",
		"job": one.Builds[0].ID, "local/job": one.Builds[0].ID, "job:default": one.Builds[0].ID, one.ID: one.Builds[0].ID,
		"job:v2.0": two.Builds[1].ID, one.ID + ":v2.0": two.Builds[1].ID, "other/job": "", "job:v3": "", "local/" + one.ID: "",
		"job:" + one.Builds[0].ID: one.Builds[0].ID, "local/Job: " + strings.ToUpper(two.Builds[1].ID): two.Builds[1].ID, one.ID + ":" + two.Builds[1].ID: two.Builds[1].ID,
		"base:" + base.Builds[0].ID: base.Builds[0].ID, base.ID + ":" + base.Builds[0].ID: base.Builds[0].ID,
		unnamed.ID + ":" + one.Builds[0].ID: "", "job:" + base.Builds[0].ID: "", "other/job:" + one.Builds[0].ID: "", "job:" + one.ID: "",
		one.Builds[0].ID: "", "job:00000000-0000-4000-8000-000000000000": "",
		unnamed.ID: unnamed.Builds[0].ID, unnamed.ID + ":default": unnamed.Builds[0].ID,
		"": "", ":": "", "/": "", "local/": "", "nope": "", "job/": "", strings.Repeat("a", 1000): "",
	} {
		got, err := s.find(reference)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got build %q and error %v, want %q", reference, got, err, want)
		}
		if err != nil && (kindOf(t, err) != templates.NotFound || len(err.Error()) > 400) {
			t.Errorf("%q: got %v, want a short error NotFound", reference, err)
		}
	}
}

// TestFindBuild checks that a build is found by its id only while it is ready: not before, and not
// after it failed. A tag can be pointed to a build by its id.
func TestFindBuild(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	job := templates.ParseReference("job")
	made, waiting, err := s.Request(job, []string{"v1"}, templates.Build{Content: templates.Content{Engine: engine.Room}})
	must.Do(t, err)
	byID := func() string { _, err := s.find("job:" + waiting.ID); return fmt.Sprint(err) }
	missing := fmt.Sprintf("tag '%s' does not exist for template 'job'", waiting.ID)
	if got := byID(); !strings.HasPrefix(got, missing+": it is not ready yet") || !strings.HasSuffix(got, "is waiting") {
		t.Errorf("while it waits: got %s, want %s and that it waits", got, missing)
	}
	must.Do(t, s.Fail(made.ID, waiting.ID, templates.Failure{}))
	if got := byID(); got != missing {
		t.Errorf("after it failed: got %s, want %s", got, missing)
	}
	ready := s.snapshot(t, "job:v2").Builds[1].ID
	if _, _, err := s.Assign(templates.ParseReference("job:"+waiting.ID), []string{"v3"}); fmt.Sprint(err) != missing {
		t.Errorf("a tag for the one that failed: got %v, want %s", err, missing)
	}
	if build, _, err := s.Assign(templates.ParseReference("job:"+ready), []string{"v3"}); err != nil || build.ID != ready {
		t.Errorf("a tag for the one that is ready: got %s and %v, want %s", build.ID, err, ready)
	}
	if got, err := s.find("job:v3"); got != ready {
		t.Errorf("got %s and %v, want %s", got, err, ready)
	}
	if _, _, err := s.Assign(job, []string{ready}); kindOf(t, err) != templates.Invalid {
		t.Errorf("an id as a tag: got %v, want an error Invalid", err)
	}
}

// TestRestart checks that after a restart all templates exist that were added and not removed.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	s.snapshot(t, "")
	s.snapshot(t, "job")
	moved := s.snapshot(t, "job") // the first has no tag now
	if len(moved.Builds) != 1 || s.kept(t) != 2 {
		t.Errorf("got %d builds and %d layers, want 1 and 2", len(moved.Builds), s.kept(t))
	}
	gone := s.snapshot(t, "gone")
	unused := func(string) bool { return false }
	must.Do(t, s.Delete(templates.ParseReference("local/gone:whatever"), unused))
	if _, err := s.Publish(templates.ParseReference("job"), true); err != nil {
		t.Fatal(err)
	}
	before := s.All()
	if _, err := s.layers.Add(func(string, bool) (bool, error) { return false, nil }); err != nil { // killed before the layer was named
		t.Fatal(err)
	}
	s = s.restart(t, dir)
	if diff := cmp.Diff(before, s.All()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if _, err := s.find(gone.ID); err == nil {
		t.Error("a deleted template is there after the restart")
	}
	if n := s.kept(t); n != 2 {
		t.Errorf("got %d layers, want those of the two builds", n)
	}
	for _, name := range []string{"job", before[0].ID, before[1].ID, before[2].ID, before[3].ID} {
		if err := s.Delete(templates.ParseReference(name), unused); err != nil && kindOf(t, err) == templates.Invalid {
			t.Error(err)
		}
	}
	if n := s.kept(t); n != 0 {
		t.Errorf("got %d layers, want none", n)
	}
}

// TestUnreadable checks that no layer is removed while a record cannot be read, because the record
// may name any layer.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"no record":       ``,
		"no JSON":         `{`,
		"another version": `{"Version":3}`,
		"another type":    `{"Version":1,"Template":{"ID":"damaged","Builds":[{"ID":"x"}],"Name":1}}`,
		"another id":      `{"Version":1,"Template":{"ID":"b","Builds":[{"ID":"x"}]}}`,
		"no builds":       `{"Version":1,"Template":{"ID":"damaged"}}`,
		"a bad tag":       `{"Version":1,"Template":{"ID":"damaged","Builds":[{"ID":"x"}],"Tags":{"a":{"Build":"y"}}}}`,
		"a bad name":      `{"Version":1,"Template":{"ID":"damaged","Name":"a b","Builds":[{"ID":"x"}]}}`,
		"a missing layer": `{"Version":1,"Template":{"ID":"damaged","Builds":[{"ID":"x","Layers":["layer-gone"]}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := serve(t, dir)
			s.snapshot(t, "job")
			if _, err := s.layers.Add(func(string, bool) (bool, error) { return false, nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.Put(store.Templates, "damaged", []byte(value), ""); err != nil {
				t.Fatal(err)
			}
			must.Do(t, s.store.Close())
			if value == "" {
				storetest.Damage(t, dir, store.Templates, "damaged")
			}
			s = serve(t, dir)
			if _, err := s.find("job"); err != nil {
				t.Errorf("the others: got %v", err)
			}
			if n := s.kept(t); n != 2 {
				t.Errorf("got %d layers, want both", n)
			}
			if _, err := s.find("damaged"); err == nil {
				t.Error("it was found")
			}
		})
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	first := s.snapshot(t, "job").Builds[0]
	assign := func(target string, tags ...string) error {
		_, _, err := s.Assign(templates.ParseReference(target), tags)
		return err
	}
	unassign := func(name string, tags ...string) error { return s.Unassign(templates.ParseReference(name), tags) }
	build, tags, err := s.Assign(templates.ParseReference("local/job"), []string{" V1 ", "v1", "stable"})
	if diff := cmp.Diff([]string{"v1", "stable"}, tags); diff != "" || err != nil || build.ID != first.ID {
		t.Errorf("got build %s and error %v, want %s; tags (-want +got):\n%s", build.ID, err, first.ID, diff)
	}
	second := s.snapshot(t, "job").Builds[1]
	must.Do(t, assign("job:default", "stable"))
	for reference, want := range map[string]string{"job:v1": first.ID, "job:stable": second.ID, "job": second.ID} {
		if got, err := s.find(reference); got != want {
			t.Errorf("%s: got %s and error %v, want %s", reference, got, err, want)
		}
	}
	uuid := "00000000-0000-4000-8000-000000000009"
	for name, tt := range map[string]struct {
		err  error
		want templates.Kind
	}{
		"no tags":             {assign("job"), templates.Invalid},
		"a bad tag":           {assign("job", "a b"), templates.Invalid},
		"an empty tag":        {assign("job", ""), templates.Invalid},
		"a long tag":          {assign("job", strings.Repeat("a", 129)), templates.Invalid},
		"a UUID":              {assign("job", uuid), templates.Invalid},
		"another team":        {assign("other/job", "a"), templates.Invalid},
		"no template":         {assign("nope", "a"), templates.NotFound},
		"no such tag":         {assign("job:v9", "a"), templates.NotFound},
		"built in":            {assign("base", "a"), templates.BuiltIn},
		"remove with a tag":   {unassign("job:v1", "v1"), templates.Invalid},
		"remove the default":  {unassign("job", "default"), templates.Invalid},
		"remove none":         {unassign("job"), templates.Invalid},
		"remove of built in":  {unassign("base", "a"), templates.BuiltIn},
		"remove of no such":   {unassign("nope", "a"), templates.NotFound},
		"remove elsewhere":    {unassign("other/job", "a"), templates.Invalid},
		"delete built in":     {s.Delete(templates.ParseReference("base"), nil), templates.BuiltIn},
		"delete one in use":   {s.Delete(templates.ParseReference("job"), func(string) bool { return true }), templates.Invalid},
		"delete no such":      {s.Delete(templates.ParseReference("nope"), nil), templates.NotFound},
		"delete of elsewhere": {s.Delete(templates.ParseReference("other/job"), nil), templates.NotFound},
	} {
		if got := kindOf(t, tt.err); got != tt.want {
			t.Errorf("%s: got %v, want kind %v", name, tt.err, tt.want)
		}
	}
	must.Do(t, unassign("job", "v1", "nope"))
	if n := s.kept(t); n != 1 {
		t.Errorf("got %d layers, want only the one that tags still point to", n)
	}
	alone := s.snapshot(t, "alone:v1")
	if err := unassign(alone.ID, "v1"); kindOf(t, err) != templates.Invalid {
		t.Errorf("the last tag: got %v, want it to stay", err)
	}
}

// TestBuildStates checks that a requested build can be used only when it is ready, and that its
// tags then point to it.
func TestBuildStates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	ref := templates.ParseReference("local/Job:v1")
	request := func(tags ...string) (template, build string) {
		t.Helper()
		made, b, err := s.Request(ref, tags, templates.Build{CPUs: 4, MemoryMB: 512})
		must.Do(t, err)
		return made.ID, b.ID
	}
	layer := func() []string {
		t.Helper()
		id, err := s.layers.Add(func(string, bool) (bool, error) { return false, nil })
		must.Do(t, err)
		return []string{id}
	}
	template, first := request("stable")
	if _, err := s.find("job:v1"); kindOf(t, err) != templates.NotFound || !strings.Contains(err.Error(), "is waiting") {
		t.Errorf("before it is built: got %v, want that it waits", err)
	}
	if err := s.Finish(template, first, templates.Content{Layers: layer()}); kindOf(t, err) != templates.Invalid || s.kept(t) != 0 {
		t.Errorf("finished before it was started: got %v and %d layers, want neither", err, s.kept(t))
	}
	for _, want := range []bool{true, false} {
		if err := s.Begin(template, first); (err == nil) != want {
			t.Errorf("start: got %v, want it to work once", err)
		}
	}
	content := templates.Content{Layers: layer(), Envs: map[string]string{"A": "1"}, User: "root", Home: "/root", Workdir: "/app", Start: "serve", Ready: "true"}
	must.Do(t, s.Finish(template, first, content))
	_, got, err := s.Find(templates.ParseReference("job:stable"))
	if err != nil || got.ID != first || got.CPUs != 4 || got.FinishedAt.IsZero() {
		t.Errorf("got %+v and error %v, want the build", got, err)
	}
	if diff := cmp.Diff(content, got.Content); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 12 { // only the last ones stay
		_, failed := request()
		must.Do(t, s.Fail(template, failed, templates.Failure{Step: "1", Message: "broken"}))
		if err := s.Fail(template, failed, templates.Failure{}); kindOf(t, err) != templates.Invalid {
			t.Errorf("failed twice: got %v, want an error", err)
		}
	}
	_, begun := request()
	must.Do(t, s.Begin(template, begun))
	all, err := s.Get(ref)
	if err != nil || len(all.Builds) != 12 || all.Latest().ID != begun || all.Snapshot() {
		t.Fatalf("got %d builds and error %v, want the ready one, 10 that failed, and the one that runs", len(all.Builds), err)
	}
	if got, err := s.find("job:v1"); got != first {
		t.Errorf("while another is built: got %q and error %v, want %q", got, err, first)
	}
	s = s.restart(t, dir)
	all, err = s.Get(ref)
	if last := all.Latest(); err != nil || last.ID != begun || last.Status != templates.Failed || !strings.Contains(last.Failure.Message, "ended during the build") {
		t.Errorf("after a restart: got %+v and error %v, want that it failed", last, err)
	}
	s = s.restart(t, dir)
	again, _ := s.Get(ref)
	if diff := cmp.Diff(all, again); diff != "" {
		t.Errorf("after another restart (-before +after):\n%s", diff)
	}
	_, second := request()
	must.Do(t, errors.Join(s.Begin(template, second), s.Finish(template, second, templates.Content{Layers: layer()})))
	if got, _ := s.find("job:v1"); got != second {
		t.Errorf("got %q, want the new build %q", got, second)
	}
	if n := s.kept(t); n != 2 { // the first one is still tagged stable
		t.Errorf("got %d layers, want 2", n)
	}
	for name, err := range map[string]error{
		"another template": s.Begin("localbasetemplate000", second), "no template": s.Begin("nope", second), "by name": s.Begin("job", second), "no build": s.Fail(template, "nope", templates.Failure{}),
	} {
		if kind := kindOf(t, err); kind != templates.NotFound && kind != templates.BuiltIn {
			t.Errorf("%s: got %v, want that there is none", name, err)
		}
	}
}

// TestFirstVersion checks that a build without a status, as in records of the first version, is
// ready.
func TestFirstVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	const record = `{"Version":1,"Template":{"ID":"old","Name":"old","CreatedAt":"2026-01-01T00:00:00Z","Builds":[{"ID":"x","CreatedAt":"2026-01-01T00:00:00Z","Layers":null,"Envs":{"A":"1"},"Sandbox":"isource"}],"Tags":{"default":{"Build":"x"}}}}`
	if _, err := s.store.Put(store.Templates, "old", []byte(record), ""); err != nil {
		t.Fatal(err)
	}
	s = s.restart(t, dir)
	_, got, err := s.Find(templates.ParseReference("old"))
	if err != nil || got.Status != templates.Ready || got.FinishedAt.IsZero() || got.Envs["A"] != "1" {
		t.Errorf("got %+v and error %v, want it to be ready", got, err)
	}
}
