package builds

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestBuild checks that a build runs each step in a sandbox, and that the results of the steps are
// then in the cache.
func TestBuild(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	first := s.request(t, "job", "v1")
	spec := running("print one", "print two")
	spec.Steps = append(spec.Steps, Step{Type: "env", Args: []string{"A", "1", "B", "$A$HOME"}}, Step{Type: "USER", Args: []string{"root"}})
	start := func(id ids, spec Spec) string {
		t.Helper()
		must.Do(t, s.Start(id.template, id.build, spec))
		status, log := s.end(t, id)
		if status.Status != templates.Ready {
			t.Fatalf("got %s %+v, want ready:\n%s", status.Status, status.Failure, log)
		}
		return log
	}
	log := start(first, spec)
	for _, want := range []string{"1 INFO [builder 1/4] RUN print one [", "1 INFO one\n", "2 INFO two\n", "3 INFO [builder 3/4] ENV A 1 B $A$HOME [", " INFO Build finished, took "} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
	_, build, err := s.all.Find(templates.ParseReference("job:v1"))
	if err != nil || len(build.Layers) != 1 || build.User != "root" {
		t.Fatalf("got %+v and error %v, want a layer and the user", build, err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "/home/user"}, build.Envs); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	again := start(s.request(t, "job", "v1"), spec)
	if n := strings.Count(again, "CACHED [builder"); n != 4 || len(w.ran) != 2 {
		t.Errorf("got %d steps from the cache and %v run, want 4 and no more:\n%s", n, w.ran, again)
	}
	changed := spec
	changed.Steps = slices.Clone(spec.Steps)
	changed.Steps[1] = Step{Type: "RUN", Args: []string{"print three"}}
	log = start(s.request(t, "other"), changed)
	if n := strings.Count(log, "CACHED [builder"); n != 1 || len(w.ran) != 3 {
		t.Errorf("got %d steps from the cache and %v run, want 1 and one more:\n%s", n, w.ran, log)
	}
	spec.Steps[1].Force = true
	if start(s.request(t, "job", "v1"), spec); len(w.ran) != 4 {
		t.Errorf("got %v run, want the forced step again", w.ran)
	}
	spec.Force = true
	if start(s.request(t, "job", "v1"), spec); len(w.ran) != 6 {
		t.Errorf("got %v run, want all again", w.ran)
	}
	if w.running != 0 {
		t.Errorf("%d sandboxes are left", w.running)
	}
	must.Do(t, s.EmptyCache())
	if n := s.kept(t); n != 2 {
		t.Errorf("got %d layers without the cache, want those of the two templates", n)
	}
}

// TestFinalizeIsCached checks that the commands of a template run only once for the same steps,
// unless a run is forced or the earlier run failed.
func TestFinalizeIsCached(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	commands := func(start, ready string, steps ...string) Spec {
		spec := running(steps...)
		spec.Start, spec.Ready = start, ready
		return spec
	}
	spec := commands("print begun", "print ready", "print one")
	forced, later := spec, commands("print begun", "print ready", "print one")
	forced.Force, later.Steps[0].Force = true, true
	for _, tt := range []struct {
		name   string
		spec   Spec
		status templates.Status
		checks int // total number of runs of the ready command after this build
		cached bool
	}{
		{"first", spec, templates.Ready, 1, false},
		{"again", spec, templates.Ready, 1, true},
		{"another start command", commands("print other", "print ready", "print one"), templates.Ready, 2, false},
		{"another ready command", commands("print begun", "print  ready", "print one"), templates.Ready, 2, false},
		{"another step", commands("print begun", "print ready", "print two"), templates.Ready, 3, false},
		{"no step", commands("print begun", "print ready"), templates.Ready, 4, false},
		{"no step again", commands("print begun", "print ready"), templates.Ready, 4, true},
		{"forced", forced, templates.Ready, 5, false},
		{"from a forced step on", later, templates.Ready, 6, false},
		{"it fails", commands("fail", "block", "print one"), templates.Failed, 6, false},
		{"it fails again", commands("fail", "block", "print one"), templates.Failed, 6, false},
		{"after the others", spec, templates.Ready, 6, true},
	} {
		id := s.request(t, "job")
		must.Do(t, s.Start(id.template, id.build, tt.spec))
		status, log := s.end(t, id)
		checks := 0
		for _, line := range w.ran {
			if line == "print ready" {
				checks++
			}
		}
		cached := strings.Contains(log, "CACHED [finalize] ready: print ready [")
		if status.Status != tt.status || checks != tt.checks || cached != tt.cached {
			t.Errorf("%s: got %s, %d checks and cached %v, want %s, %d and %v:\n%s", tt.name, status.Status, checks, cached, tt.status, tt.checks, tt.cached, log)
		}
	}
	_, build, err := s.all.Find(templates.ParseReference("job"))
	if err != nil || len(build.Layers) != 1 || build.Start != "print begun" || build.Ready != "print ready" {
		t.Errorf("got %+v and error %v, want the layer and both commands", build, err)
	}
	if w.running != 0 {
		t.Errorf("%d sandboxes are left", w.running)
	}
}

// TestStartCommandThatEnds checks a ready command that only sleeps: the build does not wait for it
// once the start command has ended.
func TestStartCommandThatEnds(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	spec := running("print one")
	spec.Start, spec.Ready = "print begun", "sleep 20"
	id := s.request(t, "job")
	must.Do(t, s.Start(id.template, id.build, spec))
	if status, log := s.end(t, id); status.Status != templates.Ready || !strings.Contains(log, "its start command has ended") {
		t.Errorf("got %s, want ready and why:\n%s", status.Status, log)
	}
}

// TestFailures checks that a failed build names its step and the reason, and leaves nothing
// behind.
func TestFailures(t *testing.T) {
	t.Parallel()
	step := func(kind string, args ...string) Spec {
		return Spec{FromImage: "e2bdev/base", Steps: []Step{{Type: "ENV", Args: []string{"A", "1"}}, {Type: kind, Args: args, FilesHash: strings.Repeat("0", 64)}}}
	}
	for name, tt := range map[string]struct {
		spec Spec
		step string
		want string
	}{
		"no such template":    {Spec{FromTemplate: "nope"}, "base", "template 'nope' not found"},
		"itself":              {Spec{FromTemplate: "job"}, "base", "tag 'default' does not exist for template 'job': it is not ready yet"},
		"an unknown type":     {step("HEALTHCHECK"), "2", "unknown type of step 'HEALTHCHECK'"},
		"a refused command":   {step("RUN", "refuse"), "2", "failed to run command 'refuse': command failed: unauthenticated: invalid username: 'nosuch'"},
		"a command":           {step("RUN", "fail"), "2", "failed to run command 'fail': exit status 3: broken"},
		"a sandbox that dies": {step("RUN", "die"), "2", "its sandbox ended: out of memory"},
		"too many args":       {step("RUN", "a", "b", "c"), "2", "RUN has 3 args"},
		"no args":             {step("WORKDIR"), "2", "WORKDIR has 0 args"},
		"an empty workdir":    {step("WORKDIR", ""), "2", "WORKDIR has no path"},
		"a value too few":     {step("ENV", "A"), "2", "ENV has 1 args"},
		"no values":           {step("ENV"), "2", "ENV has 0 args"},
		"a bad variable":      {step("ARG", "A B", "c"), "2", `ARG has "A B"`},
		"a bad value":         {step("ENV", "B", "a\x00b"), "2", `ENV has "B"`},
		"much environment":    {step("ENV", "A", strings.Repeat("x", maxEnvs)), "2", "ENV: the variables are too large"},
		"no user":             {step("USER"), "2", "USER has 0 args"},
		"a bad user":          {step("USER", "-a"), "2", "USER '-a': it must be the name"},
		"another user":        {step("USER", "alice"), "2", "USER 'alice': there is only one user id"},
		"a bad mode":          {step("COPY", "a", "b", "", "9"), "2", "the mode '9' must be octal"},
		"a bad owner":         {step("COPY", "a", "b", "a b", ""), "2", "the owner 'a b"},
		"no archive":          {step("COPY", "a", "b", "", ""), "2", "its files were not uploaded"},
		"a start command":     {Spec{FromImage: "e2bdev/base", Start: "fail", Ready: "block"}, "finalize", "the start command failed: exit status 3: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			s := w.serve(t, t.TempDir(), func(o *Options) {
				o.Target = func(context.Context, engine.Name) (Target, error) {
					return Target{OneUser: "there is only one user id"}, nil
				}
			})
			id := s.request(t, "job")
			must.Do(t, s.Start(id.template, id.build, tt.spec))
			status, log := s.end(t, id)
			died := strings.Contains(tt.want, "its sandbox ended")
			if status.Status != templates.Failed || status.Failure.Step != tt.step || !strings.Contains(status.Failure.Message, tt.want) || strings.Contains(status.Failure.Message, "its sandbox ended") != died {
				t.Fatalf("got %s %+v, want a failure of step %s with %q", status.Status, status.Failure, tt.step, tt.want)
			}
			if !strings.Contains(log, tt.step+" ERROR Build failed: ") {
				t.Errorf("the log does not say that it failed:\n%s", log)
			}
			if w.running != 0 || s.kept(t) != 0 {
				t.Errorf("%d sandboxes and %d layers are left", w.running, s.kept(t))
			}
			if _, _, err := s.all.Find(templates.ParseReference("job")); err == nil {
				t.Error("something can be made from it")
			}
		})
	}
}

// TestMachineFails checks that a failure of the machine ends the build, too.
func TestMachineFails(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	for want, fail := range map[string]*error{"saving the files of the step: the disk is full": &w.fails.save, "starting a sandbox for the step: the disk is full": &w.fails.launch} {
		*fail = errors.New("the disk is full")
		id := s.request(t, "job")
		s.begin(t, id, "print")
		if status, _ := s.end(t, id); status.Failure == nil || !strings.HasSuffix(status.Failure.Message, want) {
			t.Errorf("got %+v, want %q", status.Failure, want)
		}
		*fail = nil
	}
	if w.running != 0 || s.kept(t) != 0 {
		t.Errorf("%d sandboxes and %d layers are left", w.running, s.kept(t))
	}
}

// TestStageFails checks that a copy fails if no sandbox of its stage can be started.
func TestStageFails(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, _ := w.withImages(t, map[string]image.Image{"go": {Digest: "sha256:1"}, "small": {Digest: "sha256:2"}})
	w.fails.beside = errors.New("the disk is full")
	id := s.request(t, "job")
	must.Do(t, s.Start(id.template, id.build, Spec{
		FromImage: "small",
		Stages:    []Stage{{Name: "build", FromImage: "go", Steps: []Step{{Type: "RUN", Args: []string{"print made"}}}}},
		Steps:     []Step{{Type: "COPY", Args: []string{"/app", "/bin/", "", ""}, FromStage: "build"}},
	}))
	if status, _ := s.end(t, id); status.Failure == nil || status.Failure.Step != "1" || !strings.Contains(status.Failure.Message, "the disk is full") {
		t.Errorf("got %+v, want the first step to fail", status.Failure)
	}
}

// TestSameSteps checks that builds of one template with the same steps, which are requested and
// started at the same time, are all made, and that each step runs once.
func TestSameSteps(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	var all []ids
	for range 10 {
		all = append(all, s.request(t, "job"))
	}
	for _, id := range all {
		s.begin(t, id, "block", "print")
	}
	patience.Receive(t, "a step that blocks", w.blocked)
	close(w.block)
	for _, id := range all {
		if status, _ := s.end(t, id); status.Status != templates.Ready {
			t.Errorf("got %+v, want a build that is ready", status)
		}
	}
	if len(w.blocked) > 0 {
		t.Error("a step was run twice")
	}
}

// TestGivenUp checks that a build is cancelled when a newer build gets its tag, and when its
// template is deleted.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	one, waits := s.request(t, "job", "a", "b"), s.request(t, "job", "c")
	s.begin(t, one, "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	if err := s.Start(one.template, one.build, running()); err == nil || !strings.Contains(err.Error(), "started already") {
		t.Errorf("started twice: got %v, want an error", err)
	}
	if err := s.Refuse(one.template, one.build, errors.New("bad")); err == nil || !strings.Contains(err.Error(), "started already") {
		t.Errorf("refused while it runs: got %v, want it to go on", err)
	}
	beside := s.request(t, "job", "d")
	s.begin(t, beside, "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	other := s.request(t, "other", "a") // a tag belongs to one template
	s.begin(t, other, "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	two := s.request(t, "job", "b", "c")
	if status, _ := s.now(t, waits); status.Status != templates.Waiting {
		t.Errorf("the one that waits: got %+v, want it to wait on", status)
	}
	if status, _ := s.now(t, one); status.Status != templates.Building {
		t.Errorf("before the newer one is started: got %s, want building", status.Status)
	}
	s.begin(t, two, "print two")
	for range maxWaiting {
		s.request(t, "job", "c")
	}
	if status, _ := s.now(t, waits); status.Status != templates.Failed || !strings.Contains(status.Failure.Message, "superseded") {
		t.Errorf("the oldest of too many that wait: got %+v, want it to be superseded", status)
	}
	if err := s.Start(waits.template, waits.build, running()); err == nil {
		t.Error("a superseded build was started")
	}
	deleted := s.request(t, "gone")
	s.begin(t, deleted, "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	must.Do(t, s.all.Delete(templates.ParseReference("gone"), func(string) bool { return false }))
	s.Drop(deleted.template)
	close(w.block)
	for id, want := range map[ids]string{one: errSuperseded.Error(), deleted: errDeleted.Error(), two: "", beside: "", other: ""} {
		status, _ := s.end(t, id)
		if got := status.Failure; (got != nil) != (want != "") || got != nil && got.Message != want {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
}

// TestManyBuilds checks that a few builds run at once, that some more builds wait, and that further
// builds are refused.
func TestManyBuilds(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	var all []ids
	for i := range MaxActive {
		id := s.request(t, "job", string(rune('a'+i)))
		all = append(all, id)
	}
	late := s.request(t, "job", "late")
	for _, id := range all {
		s.begin(t, id, "block")
	}
	for range maxRunning {
		patience.Receive(t, "a step that blocks", w.blocked)
	}
	if err := s.Start(late.template, late.build, running()); !errors.Is(err, ErrBusy) {
		t.Errorf("start: got %v, want ErrBusy", err)
	}
	if _, _, err := s.Request(templates.ParseReference("other"), nil, templates.Build{}); !errors.Is(err, ErrBusy) {
		t.Errorf("request: got %v, want ErrBusy", err)
	}
	close(w.block)
	for _, id := range all {
		if status, log := s.end(t, id); status.Status != templates.Ready {
			t.Errorf("got %s, want ready:\n%s", status.Status, log)
		}
	}
	if w.most > maxRunning {
		t.Errorf("%d sandboxes ran at once, want %d", w.most, maxRunning)
	}
	s.begin(t, late)
	if status, _ := s.end(t, late); status.Status != templates.Ready {
		t.Errorf("the one that was refused: got %s, want it to be startable later", status.Status)
	}
}

// TestKilled checks that the builds of a killed server have failed, and that its finished
// templates remain.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newWorld()
	dir := t.TempDir()
	s := w.serve(t, dir)
	done := s.request(t, "done")
	s.begin(t, done, "print", "print more")
	s.end(t, done)
	failed := s.request(t, "failed")
	s.begin(t, failed, "fail")
	s.end(t, failed)
	waits, runs := s.request(t, "done", "waits"), s.request(t, "runs")
	s.begin(t, runs, "print", "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	before := s.kept(t)
	s.kill(t)
	s = w.serve(t, dir)
	for id, want := range map[ids]string{done: "", failed: "failed to run command 'fail'", waits: errEnded.Error(), runs: errEnded.Error()} {
		status, _ := s.now(t, id)
		if f := status.Failure; (f != nil) != (want != "") || f != nil && !strings.Contains(f.Message, want) {
			t.Errorf("got %s %+v, want %q", status.Status, f, want)
		}
	}
	if _, log := s.now(t, failed); !strings.Contains(log, "1 WARN broken") {
		t.Errorf("the log of the failed one has no last lines:\n%s", log)
	}
	if n := s.kept(t); n != before {
		t.Errorf("got %d layers, want the %d of the cache", n, before)
	}
	next := s.request(t, "runs")
	s.begin(t, next, "print")
	if _, log := s.end(t, next); !strings.Contains(log, "CACHED [builder 1/1]") {
		t.Errorf("the cache has not outlived the server:\n%s", log)
	}
	s.Close() // in order
	if err := s.Start(next.template, next.build, running()); !errors.Is(err, ErrClosed) {
		t.Errorf("start: got %v, want ErrClosed", err)
	}
}

// TestClose checks that Close ends the builds, and records that they did not become ready.
func TestClose(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	id := s.request(t, "job")
	s.begin(t, id, "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	s.Close()
	got, err := s.all.Get(templates.ParseReference("job"))
	if err != nil || got.Latest().Failure == nil || got.Latest().Failure.Message != errEnded.Error() {
		t.Errorf("got %+v and error %v, want the build to have failed", got, err)
	}
}

// TestFlood checks that the log of a build is bounded for any output of a command, and contains the
// end of the build.
func TestFlood(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	id := s.request(t, "job")
	s.begin(t, id, "flood", "fail")
	status, _ := s.end(t, id)
	n, last := 0, ""
	for {
		page := status.Log(Select{Level: slog.LevelDebug, Offset: n, Limit: 100})
		if len(page) == 0 {
			break
		}
		n, last = n+len(page), page[len(page)-1].Message
	}
	if n < maxLines || n > maxLines+10 || !strings.HasPrefix(last, "Build failed") {
		t.Errorf("got %d lines, the last %q, want about %d and how it ended", n, last, maxLines)
	}
	if f := status.Failure; len(f.Log) == 0 || len(f.Log) > maxTail {
		t.Errorf("the failure repeats %d lines, want some, %d at most", len(f.Log), maxTail)
	}
}

// TestFromMemory checks that a build from a snapshot with memory has the snapshot's files, and
// starts its own processes, even if its steps change nothing.
func TestFromMemory(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]Step{"with a step": {{Type: "RUN", Args: []string{"print"}}}, "with variables only": {{Type: "ENV", Args: []string{"A", "b"}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWorld().serve(t, t.TempDir())
			write := func(dir string) error { return os.WriteFile(filepath.Join(dir, "files"), nil, 0o600) }
			files, err := s.layers.Add(func(dir string, share bool) (bool, error) { return share, write(dir) })
			must.Do(t, err)
			memory, err := s.layers.AddMemory(write)
			must.Do(t, err)
			ref := templates.ParseReference("snapshot")
			snapshot, err := s.all.Add(&ref, templates.Build{Sandbox: "isandbox", Content: templates.Content{Layers: []string{files, memory}}})
			if err != nil || !s.all.HasMemory(snapshot.Latest()) {
				t.Fatalf("got %+v and error %v, want a snapshot with memory", snapshot, err)
			}
			id := s.request(t, "job")
			must.Do(t, s.Start(id.template, id.build, Spec{FromTemplate: "snapshot", Steps: steps}))
			if status, log := s.end(t, id); status.Failure != nil {
				t.Fatalf("%+v:\n%s", status.Failure, log)
			}
			_, built, err := s.all.Find(templates.ParseReference("job"))
			if err != nil || s.all.HasMemory(built) || len(built.Layers) != 1 {
				t.Errorf("got the layers %q and error %v, want the files only", built.Layers, err)
			}
			for _, name := range []string{"snapshot", "job"} {
				must.Do(t, s.all.Delete(templates.ParseReference(name), func(string) bool { return false }))
			}
			if _, left := s.layers.Split(memory); left != "" {
				t.Error("the memory is left after its snapshot")
			}
		})
	}
}
