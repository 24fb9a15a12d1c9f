package builds

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCachedStepThatCannotBeUsed checks that a cached step with unusable layers runs again.
func TestCachedStepThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	s.built(t, "job", running("print one"))
	other, err := s.layers.Add(func(dir string, share bool) (bool, error) {
		return share, os.WriteFile(filepath.Join(dir, "files"), nil, 0o600)
	})
	must.Do(t, err)
	for key, entry := range s.options.Cache.entries { // two layers that are not shared
		state := entry.State
		state.Layers = append(state.Layers[:1:1], other)
		must.Do(t, s.options.Cache.put(key, state))
	}
	s.layers.Release(other)
	if _, log := s.built(t, "job", running("print one")); strings.Contains(log, "CACHED") || len(w.ran) != 2 {
		t.Errorf("got %q, want the step again:\n%s", w.ran, log)
	}
}

// TestStepAfterACachedOne checks that a step after a cached step begins with the cached result,
// even if an earlier step ran and has left a sandbox.
func TestStepAfterACachedOne(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	dir := Step{Type: "WORKDIR", Args: []string{"/there"}} // changes nothing
	spec := running("print one")
	spec.Steps = append([]Step{dir}, spec.Steps...)
	s.built(t, "job", spec)
	for key, entry := range s.options.Cache.entries {
		if len(entry.State.Layers) == 0 {
			must.Do(t, s.options.Cache.drop(key))
		}
	}
	w.begun = nil
	spec.Steps = append(spec.Steps, running("print two").Steps...)
	if _, log := s.built(t, "job", spec); strings.Count(log, "CACHED") != 1 || len(w.begun) != 2 {
		t.Errorf("got %d sandboxes, want one for the first step and one for the last:\n%s", len(w.begun), log)
	}
}

// TestSandboxOfAnotherUser checks that the next step uses the sandbox of a step only if both have
// the same user.
func TestSandboxOfAnotherUser(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var begun []string
	s := w.serve(t, t.TempDir(), func(o *Options) {
		images := &fakeImages{all: map[string]image.Image{"x": {Digest: "sha256:1", Config: image.Config{Env: []string{"A=1"}, User: "app", Workdir: "/srv"}}}, layers: o.Layers}
		o.Target = func(context.Context, engine.Name) (Target, error) {
			return Target{Images: images, OneUser: "there is only one", Chosen: true}, nil
		}
		o.Launch = func(ctx context.Context, spec lifecycle.Spec) (Sandbox, error) {
			begun = append(begun, spec.Template.User+" "+spec.Template.Workdir+" "+spec.Envs["A"]+spec.Envs["B"])
			return w.launch(ctx, spec)
		}
	})
	s.built(t, "job", Spec{FromImage: "x", Steps: []Step{
		{Type: "WORKDIR", Args: []string{"/there"}}, {Type: "RUN", Args: []string{"print app"}},
		{Type: "WORKDIR", Args: []string{"/there"}}, {Type: "ENV", Args: []string{"B", "2"}}, {Type: "RUN", Args: []string{"print root", "root"}},
		{Type: "RUN", Args: []string{"print again"}},
	}})
	if diff := cmp.Diff([]string{" /srv 1", "app /there 1", " /there 1", "app /there 12"}, begun); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLastLineWithoutAnEnd checks that the last line of a command is logged even without an end of
// line.
func TestLastLineWithoutAnEnd(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	spec := running("part of a line", "warn of a fault")
	spec.Ready = "part two"
	_, log := s.built(t, "job", spec)
	for _, want := range []string{"1 INFO of a line\n", "2 WARN of a fault\n", "finalize DEBUG two\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("want %q:\n%s", want, log)
		}
	}
}

// TestUserWithoutAHome checks that a user without a home in the system cannot be a
// template's user.
func TestUserWithoutAHome(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	id := s.request(t, "job")
	must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "e2bdev/base", Steps: []Step{{Type: "USER", Args: []string{"homeless"}}}}))
	if status, _ := s.end(t, id); status.Failure == nil || !strings.Contains(status.Failure.Message, "it has no home") {
		t.Errorf("got %s %+v, want that it has no home", status.Status, status.Failure)
	}
}
