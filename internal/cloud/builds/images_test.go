package builds

import (
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// withImages starts a builder that has the images in all.
func (w *world) withImages(t *testing.T, all map[string]image.Image) (*server, *fakeImages) {
	t.Helper()
	images := &fakeImages{all: all}
	s := w.serve(t, t.TempDir(), func(o *Options) {
		images.layers = o.Layers
		o.Target = func(context.Context, engine.Name) (Target, error) { return Target{Images: images}, nil }
	})
	return s, images
}

// built builds a template, and returns the build and its log.
func (s *server) built(t *testing.T, name string, spec Spec) (templates.Build, string) {
	t.Helper()
	id := s.request(t, name)
	must.Do(t, s.Start(id.template, id.build, spec))
	status, log := s.end(t, id)
	if status.Status != templates.Ready {
		t.Fatalf("got %s %+v, want ready:\n%s", status.Status, status.Failure, log)
	}
	_, build, err := s.all.Find(templates.ParseReference(name))
	must.Do(t, err)
	return build, log
}

// TestFromImage checks that a build begins with an image's files and configuration, and
// does not run again until the image changes.
func TestFromImage(t *testing.T) {
	t.Parallel()
	w := newWorld()
	python := image.Image{Digest: "sha256:1", Config: image.Config{Env: []string{"PATH=/opt/bin:/bin", "A=1=2", "bad name=x"}, User: "app", Workdir: "/srv", Entrypoint: []string{"python3"}}}
	s, images := w.withImages(t, map[string]image.Image{"python:3": python, "plain": {Digest: "sha256:2"}})
	spec := Spec{FromImage: "python:3", Auth: &image.Auth{Username: "me", Password: "word"}, Steps: []Step{{Type: "RUN", Args: []string{"print one"}}, {Type: "ENV", Args: []string{"P", "$PATH:/x"}}}}
	build, log := s.built(t, "job", spec)
	want := templates.Content{
		Layers: build.Layers, Image: &engine.Image{Reference: "python:3", Digest: "sha256:1"},
		Envs: map[string]string{"PATH": "/opt/bin:/bin", "A": "1=2", "P": "/opt/bin:/bin:/x"}, User: "app", Workdir: "/srv",
	}
	if diff := cmp.Diff(want, build.Content); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, want := range []string{"base INFO pulling python:3\n", "base INFO [base] FROM python:3 sha256:1 [", `base WARN the image's variable "bad name" is left out`, "the image's own command is run in no sandbox unless it is the start command: python3", "1 INFO one\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "word") || *images.logins[0] != (image.Auth{Username: "me", Password: "word"}) {
		t.Errorf("got the login %+v, want it in the call and not in the log:\n%s", images.logins[0], log)
	}
	if _, again := s.built(t, "job", spec); strings.Count(again, "CACHED [builder") != 2 {
		t.Errorf("the second build is not from the cache:\n%s", again)
	}
	python.Digest = "sha256:3"
	images.all["python:3"] = python
	if build, again := s.built(t, "job", spec); strings.Contains(again, "CACHED") || build.Image.Digest != "sha256:3" {
		t.Errorf("got %+v, want the changed image, not from the cache:\n%s", build.Image, again)
	}
	child, _ := s.built(t, "child", Spec{FromTemplate: "job", Steps: []Step{{Type: "RUN", Args: []string{"print child"}}}})
	if child.Image == nil || child.Image.Digest != "sha256:3" || child.User != "app" {
		t.Errorf("got %+v, want the image of its parent", child.Content)
	}
	if plain, _ := s.built(t, "plain", Spec{FromImage: "plain"}); plain.User != "" || plain.Workdir != "" {
		t.Errorf("got %+v, want the defaults of E2B", plain.Content)
	}
	id := s.request(t, "missing")
	must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "gone"}))
	status, _ := s.end(t, id)
	if status.Failure == nil || status.Failure.Step != "base" || status.Failure.Message != "pulling the image 'gone': there is no such image" {
		t.Errorf("got %+v, want that it is not there", status.Failure)
	}
	for _, name := range []string{"job", "child", "plain"} {
		must.Do(t, s.all.Delete(templates.ParseReference(name), func(string) bool { return false }))
	}
	must.Do(t, s.EmptyCache())
	if n := s.kept(t); n != 0 || w.running != 0 {
		t.Errorf("%d layers and %d sandboxes are left", n, w.running)
	}
}

// keyInLog matches the key of a step at the end of a line.
var keyInLog = regexp.MustCompile(` \[[0-9a-f]{64}\]$`)

// TestBaseIsLogged checks the lines of the log about the base of a build: its name and key, a note for a
// built-in template, and a note for an image whose own command is not run.
func TestBaseIsLogged(t *testing.T) {
	t.Parallel()
	s, _ := newWorld().withImages(t, map[string]image.Image{
		"runs":  {Digest: "sha256:1", Config: image.Config{Entrypoint: []string{"python3"}, Cmd: []string{"-i", "x"}}},
		"plain": {Digest: "sha256:2"},
	})
	s.built(t, "parent", running())
	const own = "base INFO the image's own command is run in no sandbox unless it is the start command: python3 -i x"
	builtIn := func(from, name string) string {
		return "base INFO " + from + " is the built-in template " + name + " of this local cloud: sandboxes see the programs of this machine"
	}
	for _, tt := range []struct {
		spec Spec
		want []string
	}{
		{Spec{FromImage: "e2bdev/base"}, []string{"base INFO [base] FROM e2bdev/base", builtIn("e2bdev/base", "base")}},
		{Spec{FromTemplate: "code-interpreter-v1"}, []string{"base INFO [base] FROM code-interpreter-v1", builtIn("code-interpreter-v1", "code-interpreter-v1")}},
		{Spec{FromTemplate: "parent"}, []string{"base INFO [base] FROM parent"}},
		{Spec{FromImage: "plain"}, []string{"base INFO pulling plain", "base INFO [base] FROM plain sha256:2"}},
		{Spec{FromImage: "runs"}, []string{"base INFO pulling runs", "base INFO [base] FROM runs sha256:1", own}},
		{Spec{FromImage: "runs", Ready: "print"}, []string{"base INFO pulling runs", "base INFO [base] FROM runs sha256:1", own}},
		{Spec{FromImage: "runs", Start: "print"}, []string{"base INFO pulling runs", "base INFO [base] FROM runs sha256:1"}},
		{Spec{FromImage: "plain", Stages: []Stage{{Name: "a", FromImage: "runs"}}}, []string{
			"a/base INFO pulling runs", "a/base INFO [base] FROM runs sha256:1", "base INFO pulling plain", "base INFO [base] FROM plain sha256:2",
		}},
	} {
		_, log := s.built(t, "job", tt.spec)
		var got []string
		for line := range strings.Lines(log) {
			if step, _, _ := strings.Cut(line, " "); strings.HasSuffix(step, stepBase) {
				got = append(got, keyInLog.ReplaceAllString(strings.TrimSpace(line), ""))
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.spec, diff)
		}
	}
}

// TestImagesOfTheEngine checks that the engine fetches every image, and the empty one, too, if layers cannot
// be unpacked.
func TestImagesOfTheEngine(t *testing.T) {
	t.Parallel()
	for _, unpacks := range []bool{false, true} {
		s := withTarget(t, func(o *Options) Target {
			all := map[string]image.Image{"x": {Digest: "sha256:1"}, image.Scratch: {Digest: "sha256:2"}}
			target := Target{Images: &fakeImages{all: all, layers: o.Layers}}
			if unpacks {
				target.Unpack = func(context.Context, []string, io.Reader, string) error { return nil }
			}
			return target
		})
		want := map[string]string{"x": "sha256:1", image.Scratch: "sha256:2"}
		if unpacks {
			want[image.Scratch] = ""
		}
		for from, digest := range want {
			if build, _ := s.built(t, "job", Spec{FromImage: from}); build.Image == nil || build.Image.Digest != digest {
				t.Errorf("%s with Unpack %v: got %+v, want the digest %q", from, unpacks, build.Image, digest)
			}
		}
	}
}

// TestWhereImagesBegin checks the directory in which commands begin. An image with a user and
// without a directory begins at the root, as in Docker. An image without a user begins in the same
// directory as on E2B.
func TestWhereImagesBegin(t *testing.T) {
	t.Parallel()
	for has, want := range map[[2]string]string{{"", ""}: "", {"app", ""}: "/", {"", "/srv"}: "/srv", {"app", "/srv"}: "/srv"} {
		s, _ := newWorld().withImages(t, map[string]image.Image{"python": {Digest: "sha256:1", Config: image.Config{User: has[0], Workdir: has[1]}}})
		if build, _ := s.built(t, "job", Spec{FromImage: "python"}); build.User != has[0] || build.Workdir != want {
			t.Errorf("the user %q and the directory %q: got %q and %q, want the directory %q", has[0], has[1], build.User, build.Workdir, want)
		}
	}
}

// TestImageWithTooMuchEnvironment checks that an image whose variables no sandbox can take is refused.
func TestImageWithTooMuchEnvironment(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{maxEnvs - 1: "", maxEnvs: "the image 'big': the variables are too large"} {
		s, _ := newWorld().withImages(t, map[string]image.Image{"big": {Digest: "sha256:1", Config: image.Config{Env: []string{"A=" + strings.Repeat("x", n)}}}})
		id := s.request(t, "job")
		must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "big"}))
		if status, _ := s.end(t, id); (status.Failure != nil) != (want != "") || status.Failure != nil && !strings.HasPrefix(status.Failure.Message, want) {
			t.Errorf("%d bytes: got %+v, want %q", n, status.Failure, want)
		}
	}
}

// TestStepsOfAnotherMachine checks that no result of another machine's cache is used, whatever the
// base of the build.
func TestStepsOfAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, from := range []Spec{{FromImage: "python"}, {FromImage: "e2bdev/base"}, {FromTemplate: "parent"}} {
		machine := "one"
		images := &fakeImages{all: map[string]image.Image{"python": {Digest: "sha256:1"}}}
		s := newWorld().serve(t, t.TempDir(), func(o *Options) {
			images.layers = o.Layers
			o.Target = func(context.Context, engine.Name) (Target, error) {
				return Target{Images: images, Machine: machine}, nil
			}
		})
		s.built(t, "parent", running("print parent"))
		from.Steps = running("print").Steps
		for _, tt := range []struct {
			machine string
			cached  bool
		}{{"one", false}, {"one", true}, {"other", false}, {"one", true}} {
			machine = tt.machine
			if _, log := s.built(t, "job", from); strings.Contains(log, "CACHED [builder") != tt.cached {
				t.Errorf("from %s%s on %s: want it from the cache: %v\n%s", from.FromImage, from.FromTemplate, machine, tt.cached, log)
			}
		}
	}
}

// TestPlacement checks the paths and owners of copied files.
func TestPlacement(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  []string
		stage string
		want  string // target, owner, mode and user; "": the step is refused
	}{
		{[]string{"a", "b"}, "", "/work/b app  app"},
		{[]string{"a", "b/"}, "", "/work/b/ app  app"},
		{[]string{"a", "/"}, "", "/ app  app"},
		{[]string{"a", "../$D"}, "", "/dir app  app"},
		{[]string{"a", "~/b"}, "", "/home/app/b app  app"},
		{[]string{"a", "~"}, "", "/home/app app  app"},
		{[]string{"a", "~b"}, "", "/work/~b app  app"},
		{[]string{"a", "b", "", "0644"}, "", "/work/b app 0644 app"},
		{[]string{"a", "b", "5"}, "", "/work/b 5:5  5:5"},
		{[]string{"a", "b", "$ID"}, "", "/work/b 7:7  7:7"},
		{[]string{"a", "b", "5:6"}, "", "/work/b 5:6  5:6"},
		{[]string{"a", "b", "me"}, "", "/work/b me  me"},
		{[]string{"a", "b", "me:them"}, "", "/work/b me:them  me:them"},
		{[]string{"a", "b"}, "stage", "/work/b   root"},
		{[]string{"a", "b", "5"}, "stage", "/work/b 5:5  5:5"},
		{[]string{"", "b"}, "", ""}, {[]string{"a", ""}, "", ""}, {[]string{"a", "$NONE"}, "", ""}, {[]string{"a"}, "", ""}, {[]string{"a", "b", "", "", ""}, "", ""},
		{[]string{"a", "b", "me:"}, "", ""}, {[]string{"a", "b", "-me"}, "", ""}, {[]string{"a", "b", "", "8"}, "", ""}, {[]string{"a", "b", "", "777777"}, "", ""},
	} {
		r := &run{Builder: &Builder{}, state: templates.Content{User: "app", Workdir: "/work", Envs: map[string]string{"D": "dir", "ID": "7"}}}
		p, err := r.placement("COPY", Step{Args: tt.args, FromStage: tt.stage})
		got := strings.Join([]string{p.Target, p.Owner, p.Mode, p.User}, " ")
		if (err == nil) != (tt.want != "") || err == nil && (got != tt.want || p.Source != tt.args[0]) {
			t.Errorf("%q from %q: got %q of %q and error %v, want %q", tt.args, tt.stage, got, p.Source, err, tt.want)
		}
	}
}

// TestVariablesOfImages checks that a build takes the variables of an image that a process can
// have, with the rest of the image, and warns of the other variables.
func TestVariablesOfImages(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]map[string]string{
		"A=1": {"A": "1"}, "A=": {"A": ""}, "A": {"A": ""}, "A=1=2": {"A": "1=2"}, "_a0=x y": {"_a0": "x y"}, "A=\xff": {"A": "\xff"},
		"=1": {}, "0A=1": {}, "A B=1": {}, "A\x00=1": {}, "A=1\x002": {}, "": {},
	} {
		said := 0
		pulled := image.Image{Layers: []string{"layer"}, Digest: "sha256:1", Config: image.Config{Env: []string{line}, User: "me", Workdir: "/me"}}
		got := contentOf(engine.Room, "x", pulled, func(string) { said++ })
		content := templates.Content{
			Layers: []string{"layer"}, Engine: engine.Room, Image: &engine.Image{Reference: "x", Digest: "sha256:1"}, Envs: want, User: "me", Workdir: "/me",
		}
		if diff := cmp.Diff(content, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
		if said != 1-len(want) {
			t.Errorf("%q: got %d warnings, want %d", line, said, 1-len(want))
		}
	}
}

// TestStages checks that stages are built before the steps that copy from them, and are built again
// when they change.
func TestStages(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, images := w.withImages(t, map[string]image.Image{"go": {Digest: "sha256:1"}, "small": {Digest: "sha256:2"}})
	copied := Step{Type: "COPY", Args: []string{"$A/app", "/bin/", "$ID:5", "0755"}, FromStage: "build"}
	spec := Spec{
		FromImage: "small", Ready: "print ready",
		Stages: []Stage{
			{Name: "build", FromImage: "go", Steps: []Step{{Type: "RUN", Args: []string{"print made"}}}},
			{Name: "more", FromImage: "go", Steps: []Step{{Type: "RUN", Args: []string{"print made"}}, {Type: "COPY", Args: []string{"/a", "/b", "me", ""}, FromStage: "build"}}},
		},
		Steps: []Step{{Type: "ENV", Args: []string{"A", "/out", "ID", "7"}}, copied},
	}
	_, log := s.built(t, "job", spec)
	for _, want := range []string{"build/base INFO [base] FROM go sha256:1 [", "build/1 INFO [build 1/1] RUN print made [", "more/1 INFO CACHED [more 1/2]", "2 INFO [builder 2/2] COPY --from=build $A/app"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
	want := []string{"print made", "place |/b|me||me of go /a", "place |/bin/|7:5|0755|7:5 of go /out/app", "print ready"}
	if diff := cmp.Diff(want, w.ran); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, again := s.built(t, "job", spec); strings.Count(again, "CACHED") != 6 {
		t.Errorf("the second build is not from the cache:\n%s", again)
	}
	w.ran, spec.Force = nil, true
	if s.built(t, "job", spec); strings.Count(strings.Join(w.ran, "\n"), "print made") != 1 {
		t.Errorf("got %q, want what two stages begin with once", w.ran)
	}
	w.ran, spec.Force = nil, false
	spec.Stages[0].Steps[0].Force = true // counts for copies from the stage, too, in stages and in the template
	if _, log := s.built(t, "job", spec); strings.Count(log, "CACHED") != 2 || !slices.Equal(w.ran, want) {
		t.Errorf("got %q, want %q and only what the forced step leads to:\n%s", w.ran, want, log)
	}
	w.ran, spec.Stages[0].Steps[0].Force = nil, false
	images.all["go"] = image.Image{Digest: "sha256:9"}
	if _, log := s.built(t, "job", spec); strings.Count(log, "CACHED") != 2 || len(w.ran) != 4 {
		t.Errorf("got %q, want everything that depends on the changed image:\n%s", w.ran, log)
	}
	fails := spec
	fails.Stages = []Stage{{Name: "build", FromImage: "go", Steps: []Step{{Type: "RUN", Args: []string{"fail"}}}}}
	for step, spec := range map[string]Spec{
		"build/1": fails,
		"1":       {FromImage: "small", Stages: spec.Stages, Steps: []Step{{Type: "COPY", Args: []string{"/missing", "/b", "", ""}, FromStage: "build"}}},
	} {
		id := s.request(t, "job")
		must.Do(t, s.Start(id.template, id.build, spec))
		if status, log := s.end(t, id); status.Failure == nil || status.Failure.Step != step || !strings.Contains(log, step+" ERROR Build failed") {
			t.Errorf("got %+v, want the failure of step %s:\n%s", status.Failure, step, log)
		}
	}
	if w.running != 0 {
		t.Errorf("%d sandboxes are left", w.running)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	from := func(name string) []Step { return []Step{{Type: "COPY", FromStage: name}} }
	for want, spec := range map[string]Spec{
		"":                                   {Stages: []Stage{{Name: "a", FromImage: "x"}, {Name: "b", FromImage: "x", Steps: from("a")}}, Steps: from("b")},
		"fromStage names 'a'":                {Steps: from("a")},
		"fromStage names 'b'":                {Stages: []Stage{{Name: "a", FromImage: "x", Steps: from("b")}, {Name: "b", FromImage: "x"}}},
		"fromStage names 'c'":                {Stages: []Stage{{Name: "c", FromImage: "x", Steps: from("c")}}},
		"stages[0].name must be a name":      {Stages: []Stage{{FromImage: "x"}}},
		"stages[1].name must be a name that": {Stages: []Stage{{Name: "a", FromImage: "x"}, {Name: "a", FromImage: "x"}}},
		"stages[0].fromImage is missing":     {Stages: []Stage{{Name: "a"}}},
		"stages[1].name must be":             {Stages: []Stage{{Name: strings.Repeat("a", maxRepeated), FromImage: "x"}, {Name: strings.Repeat("a", maxRepeated+1), FromImage: "x"}}},
	} {
		if err := spec.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
