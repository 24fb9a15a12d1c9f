package builds

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEngines checks that a template has the requested engine, or the engine of its base, or the
// engine of the cloud. Steps that were cached for one engine are not used for another.
func TestEngines(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir(), func(o *Options) {
		o.Engine = engine.Room
		o.Target = func(_ context.Context, name engine.Name) (Target, error) { return Target{Machine: string(name)}, nil }
	})
	build := func(name string, asked engine.Name, from string) (templates.Status, string) {
		t.Helper()
		made, build, err := s.Request(templates.ParseReference(name), nil, templates.Build{Content: templates.Content{Engine: asked}})
		must.Do(t, err)
		spec := Spec{FromTemplate: from, Steps: running("print " + name).Steps}
		must.Do(t, s.Start(made.ID, build.ID, spec))
		status, log := s.end(t, ids{made.ID, build.ID})
		return status.Status, log
	}
	for _, tt := range []struct {
		name  string
		asked engine.Name
		from  string
		want  engine.Name
	}{
		{"plain", "", "base", engine.Room}, {"asked", engine.Docker, "base", engine.Docker}, {"from", "", "base-docker", engine.Docker},
		{"child", "", "asked", engine.Docker}, {"both", engine.Docker, "asked", engine.Docker},
	} {
		if status, log := build(tt.name, tt.asked, tt.from); status != templates.Ready {
			t.Errorf("%s: got %s, want ready:\n%s", tt.name, status, log)
		}
		if _, got, err := s.all.Find(templates.ParseReference(tt.name)); err != nil || got.Engine != tt.want {
			t.Errorf("%s: got the engine %q and error %v, want %q", tt.name, got.Engine, err, tt.want)
		}
	}
	if status, log := build("mixed", engine.Room, "asked"); status != templates.Failed || !strings.Contains(log, "asked is of the engine docker, so a template from it cannot be of the engine room") {
		t.Errorf("from a template of another engine: got %s, want it to fail:\n%s", status, log)
	}
	for asked, want := range map[engine.Name]bool{engine.Room: true, engine.Docker: false} {
		if status, log := build("plain", asked, "base"); status != templates.Ready || strings.Contains(log, "CACHED") != want {
			t.Errorf("again on %s: got %s, want the step from the cache: %v\n%s", asked, status, want, log)
		}
	}
}

// TestChosenUser checks an engine whose sandboxes have one user, which the template chooses. Each
// command runs in a sandbox of its own user, and every other step in a sandbox of root.
func TestChosenUser(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var users []string
	s := w.serve(t, t.TempDir(), func(o *Options) {
		images := &fakeImages{all: map[string]image.Image{"x": {Digest: "sha256:1", Config: image.Config{User: "app", Workdir: "/srv"}}}, layers: o.Layers}
		o.Target = func(context.Context, engine.Name) (Target, error) {
			return Target{Images: images, OneUser: "there is only one", Chosen: true}, nil
		}
		o.Launch = func(ctx context.Context, spec lifecycle.Spec) (Sandbox, error) {
			users = append(users, spec.Template.User+" "+spec.Template.Workdir)
			return w.launch(ctx, spec)
		}
	})
	build, _ := s.built(t, "job", Spec{
		FromImage: "x", Stages: []Stage{{Name: "stage", FromImage: "x"}}, Ready: "print ready",
		Steps: []Step{
			{Type: "RUN", Args: []string{"print app"}}, {Type: "RUN", Args: []string{"print root", "root"}}, {Type: "WORKDIR", Args: []string{"/work"}},
			{Type: "COPY", Args: []string{"/a", "/b"}, FromStage: "stage"}, {Type: "USER", Args: []string{"other"}}, {Type: "RUN", Args: []string{"print other"}},
		},
	})
	want := []string{"app /srv", " /srv", " /srv", " /work", " /srv", " /work", "other /work", "other /work"}
	if diff := cmp.Diff(want, users); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if build.User != "other" || build.Home != "/home/made" {
		t.Errorf("got %+v, want the last user", build.Content)
	}
}

func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.Target = func(_ context.Context, name engine.Name) (Target, error) {
			if name == engine.Docker {
				return Target{}, errors.New("no daemon")
			}
			return Target{Refusal: "there is no ground"}, nil
		}
	})
	for asked, want := range map[engine.Name]string{engine.Docker: "no daemon", "": "building templates: there is no ground"} {
		_, _, err := s.Request(templates.ParseReference("job"), nil, templates.Build{Content: templates.Content{Engine: asked}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", asked, err, want)
		}
		_, err = s.FromImage(t.Context(), asked, "python:3")
		want = strings.TrimPrefix(want, "building templates: ")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "templates:") {
			t.Errorf("an image with %q: got error %v, want %q, and nothing about builds", asked, err, want)
		}
		if got := errors.Is(err, errors.ErrUnsupported); got != (asked == "") {
			t.Errorf("an image with %q: got error %v, which is ErrUnsupported: %v", asked, err, got)
		}
	}
}

// TestEngineThatIsMissing checks that a build fails with the reason if its engine is missing or has
// no images, even if the engine was available when the build was requested.
func TestEngineThatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		target Target
		err    error
		want   string
	}{
		"it is missing":   {Target{}, errors.New("no docker here"), "no docker here"},
		"builds nothing":  {Target{Refusal: "it has no files"}, nil, "it has no files"},
		"it has no image": {Target{NoImages: "no way to fetch any"}, nil, "no way to fetch any"},
	} {
		for _, from := range []Spec{{FromImage: "python"}, {FromTemplate: "parent"}} {
			from.Steps = running("print").Steps
			var target Target
			var missing error
			s := newWorld().serve(t, t.TempDir(), func(o *Options) {
				o.Target = func(context.Context, engine.Name) (Target, error) { return target, missing }
			})
			s.built(t, "parent", running("print parent"))
			id := s.request(t, "job")
			target, missing = tt.target, tt.err
			must.Do(t, s.Start(id.template, id.build, from))
			status, log := s.end(t, id)
			if from.FromTemplate != "" && tt.target.NoImages != "" {
				if status.Failure != nil {
					t.Errorf("%s, from a template: got %+v, want it to need no images", name, status.Failure)
				}
				continue
			}
			if status.Failure == nil || status.Failure.Step != stepBase || !strings.Contains(status.Failure.Message, tt.want) {
				t.Errorf("%s: got %s %+v, want %q:\n%s", name, status.Status, status.Failure, tt.want, log)
			}
		}
	}
}
