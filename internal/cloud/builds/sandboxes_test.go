package builds

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// launched starts a builder whose engines have one target, with the image "x". all receives the specs of
// its sandboxes.
func launched(t *testing.T, w *world, target Target, all *[]lifecycle.Spec) *server {
	t.Helper()
	return w.serve(t, t.TempDir(), func(o *Options) {
		o.Engine = engine.Room
		config := image.Config{Env: []string{"A=1"}, Workdir: "/srv"}
		target.Images = &fakeImages{all: map[string]image.Image{"x": {Digest: "sha256:1", Config: config}}, layers: o.Layers}
		o.Target = func(context.Context, engine.Name) (Target, error) { return target, nil }
		o.Launch = func(ctx context.Context, spec lifecycle.Spec) (Sandbox, error) {
			*all = append(*all, spec)
			return w.launch(ctx, spec)
		}
	})
}

// TestSandboxesOfSteps checks everything with which the sandboxes of a build begin.
func TestSandboxesOfSteps(t *testing.T) {
	t.Parallel()
	egress, err := network.ParseRules(true, nil, nil)
	must.Do(t, err)
	form := regexp.MustCompile(`^i[a-z0-9]{20}$`)
	for _, sharing := range []func() layers.Sharing{nil, lifecycletest.Sharing} {
		for _, from := range []string{"x", "e2bdev/base"} {
			w := newWorld()
			w.sharing = sharing
			var got []lifecycle.Spec
			s := launched(t, w, Target{}, &got)
			made, build, err := s.Request(templates.ParseReference("job"), nil, templates.Build{CPUs: 3})
			must.Do(t, err)
			id := ids{made.ID, build.ID}
			must.Do(t, s.Start(id.template, id.build, Spec{FromImage: from, Steps: running("print one", "print two").Steps}))
			status, log := s.end(t, id)
			if status.Status != templates.Ready || !strings.Contains(log, "room sandboxes have {CPUs:3 ") {
				t.Errorf("from %s: got %s, want ready and the resources of the engine:\n%s", from, status.Status, log)
			}
			want := lifecycle.Spec{Template: lifecycle.Template{ID: id.template, Alias: "job", Engine: engine.Room, Resources: engine.Resources{CPUs: 3}}}
			below := 0 // layers of the first sandbox
			if from == "x" {
				want.Template.Image, want.Template.Workdir = &engine.Image{Reference: "x", Digest: "sha256:1"}, "/srv"
				want.Envs, below = map[string]string{"A": "1"}, 1
			}
			if diff := cmp.Diff([]lifecycle.Spec{want, want}, got, cmpopts.IgnoreFields(lifecycle.Spec{}, "ID", "AccessToken", "TrafficToken", "Egress", "Layers", "Files")); diff != "" {
				t.Fatalf("from %s (-want +got):\n%s", from, diff)
			}
			for i, one := range got {
				shared, copied := below+i, 0
				if sharing == nil {
					shared, copied = 0, min(below+i, 1)
				}
				if len(slices.Compact(one.Layers)) != shared || (one.Files != "") != (copied > 0) || slices.Contains(one.Layers, "") {
					t.Errorf("from %s, sandbox %d: got the layers %q and the files %q, want %d and %d", from, i+1, one.Layers, one.Files, shared, copied)
				}
				if one.AccessToken == "" || one.TrafficToken == "" || one.AccessToken == one.TrafficToken {
					t.Errorf("from %s: got the tokens %q and %q, want two", from, one.AccessToken, one.TrafficToken)
				}
				if !form.MatchString(one.ID) || !reflect.DeepEqual(one.Egress, egress) {
					t.Errorf("from %s: got the id %q and the rules %+v", from, one.ID, one.Egress)
				}
			}
			if got[0].ID == got[1].ID || got[0].AccessToken == got[1].AccessToken || got[0].TrafficToken == got[1].TrafficToken {
				t.Errorf("from %s: two sandboxes have the same id or token: %+v", from, got)
			}
		}
	}
}

// TestOnlyUserOfASandbox checks the only user of the sandbox of a command: the command's own, if a template
// that begins with an image chooses it.
func TestOnlyUserOfASandbox(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		chosen     bool
		from, user string
		want       string
	}{
		{true, "x", "app", "app"}, {true, "x", "root", ""}, {true, "x", "user", ""}, {true, "x", "", ""},
		{true, "e2bdev/base", "app", ""}, {false, "x", "app", ""}, {false, "e2bdev/base", "app", ""},
	} {
		var got []lifecycle.Spec
		s := launched(t, newWorld(), Target{OneUser: "there is only one", Chosen: tt.chosen}, &got)
		s.built(t, "job", Spec{FromImage: tt.from, Steps: []Step{{Type: "RUN", Args: []string{"print", tt.user}}}})
		if len(got) != 1 || got[0].Template.User != tt.want {
			t.Errorf("%+v: got %+v", tt, got)
		}
	}
}

// TestUsersOfTemplates checks which users a template can have, for the engines with one user and for the
// others, and the home of each.
func TestUsersOfTemplates(t *testing.T) {
	t.Parallel()
	one := Target{OneUser: "there is only one"}
	named, chosen := Target{OneUser: one.OneUser, User: "app"}, Target{OneUser: one.OneUser, Chosen: true}
	for _, tt := range []struct {
		target     Target
		from, name string
		user, home string // "": it is refused
	}{
		{Target{}, "e2bdev/base", "alice", "alice", "/home/made"}, {Target{}, "e2bdev/base", "root", "root", ""}, {Target{}, "e2bdev/base", "0", "root", ""},
		{Target{}, "e2bdev/base", "5:6", "5:6", "/"}, {Target{}, "x", "0", "0", "/"}, {Target{}, "x", "alice:5", "alice:5", "/"},
		{one, "e2bdev/base", "alice", "", ""}, {one, "x", "alice", "", ""}, {one, "e2bdev/base", "user", "user", ""}, {one, "x", "root", "root", ""},
		{one, "e2bdev/base", "5:6", "", ""}, {one, "x", "5:6", "5:6", "/"},
		{named, "e2bdev/base", "app", "app", ""}, {named, "e2bdev/base", "alice", "", ""},
		{chosen, "x", "alice", "alice", "/home/made"}, {chosen, "e2bdev/base", "alice", "", ""},
	} {
		var all []lifecycle.Spec
		s := launched(t, newWorld(), tt.target, &all)
		id := s.request(t, "job")
		must.Do(t, s.Start(id.template, id.build, Spec{FromImage: tt.from, Steps: []Step{{Type: "USER", Args: []string{tt.name}}}}))
		status, _ := s.end(t, id)
		_, build, _ := s.all.Find(templates.ParseReference("job"))
		if build.User != tt.user || build.Home != tt.home {
			t.Errorf("%+v: got %q with the home %q and %+v", tt, build.User, build.Home, status.Failure)
		}
		if tt.user == "" && (status.Failure == nil || !strings.HasSuffix(status.Failure.Message, one.OneUser)) {
			t.Errorf("%+v: got %+v, want it to be refused", tt, status.Failure)
		}
	}
}

// TestOwnVariables checks the variables that a text can name without a step that sets them, and that such a
// step comes first.
func TestOwnVariables(t *testing.T) {
	t.Parallel()
	const all = "$HOME|$USER|$LOGNAME|$PATH|$NONE"
	own := map[string]string{"HOME": "/h", "USER": "me", "LOGNAME": "us", "PATH": "/p"}
	for _, tt := range []struct {
		path  string
		state templates.Content
		want  string
	}{
		{"/bin", templates.Content{}, "/home/user|user|user|/bin|"}, {"", templates.Content{User: "root"}, "/root|root|root|" + imagePath + "|"},
		{"/bin", templates.Content{Image: &engine.Image{}, User: "app", Home: "/app"}, "/app|app|app|" + imagePath + "|"},
		{"/bin", templates.Content{Envs: own}, "/h|me|us|/p|"},
	} {
		r := &run{Builder: &Builder{options: Options{Path: tt.path}}, state: tt.state}
		if got := r.expand(all); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.state, got, tt.want)
		}
	}
}
