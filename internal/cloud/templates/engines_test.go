package templates_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestBuiltInOfEngines checks that each engine has its own versions of the built-in templates. No
// list contains them, and no build can take their names.
func TestBuiltInOfEngines(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	ids := map[string]bool{}
	for reference, want := range map[string]engine.Name{
		"base": "", "code-interpreter-v1": "", "base-room": engine.Room, "base-docker": engine.Docker,
		"code-interpreter-v1-room": engine.Room, "code-interpreter-v1-docker": engine.Docker,
		"base-wasm": engine.Wasm, "code-interpreter-v1-wasm": engine.Wasm,
		"base-gvisor": engine.GVisor, "code-interpreter-v1-gvisor": engine.GVisor,
	} {
		made, build, err := s.Find(templates.ParseReference(reference))
		if err != nil || build.Engine != want || made.Name != reference || len(made.ID) != len("localbasetemplate000") {
			t.Errorf("%s: got %+v and error %v, want the engine %q", reference, made, err, want)
		}
		ids[made.ID], ids[build.ID] = true, true
		if _, _, err := s.Request(templates.ParseReference(reference), nil, templates.Build{}); err == nil {
			t.Errorf("%s: a build took the name", reference)
		}
	}
	if len(ids) != 20 {
		t.Errorf("got the ids %v, want 10 of templates and 10 of builds", ids)
	}
	var listed []string
	for _, one := range s.All() {
		listed = append(listed, one.Name)
	}
	if want := []string{"base", "code-interpreter-v1"}; !slices.Equal(listed, want) {
		t.Errorf("listed are %v, want %v", listed, want)
	}
}

// TestImages checks that templates which are images have the same ids after a restart, and are listed.
func TestImages(t *testing.T) {
	t.Parallel()
	var ids []string
	for range 2 {
		s := store.Temporary(t.TempDir())
		r := templates.Open(templates.Options{
			Store: s, Layers: layers.Open(layers.Options{Store: s}), Images: []templates.Image{{Name: "tools", Reference: "r.test/tools:1"}},
		})
		made, build, err := r.Find(templates.ParseReference("tools"))
		must.Do(t, err)
		if build.Image == nil || build.Image.Reference != "r.test/tools:1" || build.Engine != "" {
			t.Errorf("its build is %+v", build)
		}
		if byID, _, err := r.Find(templates.ParseReference(made.ID)); err != nil || byID.Name != "tools" {
			t.Errorf("by its id: %+v, %v", byID, err)
		}
		if _, _, err := r.Request(templates.ParseReference("tools"), nil, templates.Build{}); err == nil {
			t.Error("a build took the name")
		}
		ids = append(ids, made.ID, build.ID)
		if !slices.ContainsFunc(r.All(), func(t templates.Template) bool { return t.Name == "tools" }) {
			t.Error("it is not listed")
		}
	}
	if !slices.Equal(ids[:2], ids[2:]) {
		t.Errorf("the ids are %v", ids)
	}
}

// TestEngineIsStored checks that a template keeps its engine. A template that was stored by a
// version without engines has the engine of the room.
func TestEngineIsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	ref := templates.ParseReference("job")
	made, err := s.Add(&ref, templates.Build{Content: templates.Content{Engine: engine.Docker}})
	must.Do(t, err)
	old := made
	old.ID, old.Name = "older000000000000000", "base-docker"
	old.Builds = slices.Clone(old.Builds)
	old.Builds[0].Engine = ""
	value, err := json.Marshal(map[string]any{"Version": 2, "Template": old})
	if err == nil {
		_, err = s.store.Put(store.Templates, old.ID, value, "")
	}
	must.Do(t, err)
	s = s.restart(t, dir)
	for reference, want := range map[string]engine.Name{"job": engine.Docker, old.ID: engine.Room, "base-docker": engine.Room} {
		if _, build, err := s.Find(templates.ParseReference(reference)); err != nil || build.Engine != want {
			t.Errorf("%s: got the engine %q and error %v, want %q", reference, build.Engine, err, want)
		}
	}
}
