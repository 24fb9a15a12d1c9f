package builds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRequestsSupersedeOnlyWhatWaits checks that a request supersedes only builds that wait for
// their start. Running builds continue, and ready builds stay.
func TestRequestsSupersedeOnlyWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	ready, failed, runs := s.request(t, "job", "a"), s.request(t, "job", "a"), s.request(t, "job", "a")
	s.begin(t, ready, "print")
	s.end(t, ready)
	s.begin(t, failed, "fail")
	s.end(t, failed)
	s.begin(t, runs, "block")
	patience.Receive(t, "a step that blocks", w.blocked)
	beside, oldest := s.request(t, "job", "b"), s.request(t, "job", "a")
	var next []ids
	for range maxWaiting - 1 {
		next = append(next, s.request(t, "job", "a"))
	}
	want := map[ids]templates.Status{ready: templates.Ready, failed: templates.Failed, runs: templates.Building, beside: templates.Waiting, oldest: templates.Waiting, next[0]: templates.Waiting}
	check := func(when string) {
		t.Helper()
		for id, want := range want {
			if status, ok := s.Status(id.template, id.build); !ok || status.Status != want {
				t.Errorf("%s: got %s, want %s", when, status.Status, want)
			}
		}
		if _, build, err := s.all.Find(templates.ParseReference("job:a")); err != nil || build.ID != ready.build {
			t.Errorf("%s: the tag points to %s (%v), want the build that is ready", when, build.ID, err)
		}
	}
	check("as many wait as may")
	s.request(t, "job", "a")
	want[oldest] = templates.Failed
	check("one more waits")
	close(w.block)
	if status, log := s.end(t, runs); status.Status != templates.Ready {
		t.Errorf("got %s, want the one that ran to be ready:\n%s", status.Status, log)
	}
}

// TestGivenUpIsNeverReady checks that a deleted or superseded build does not become ready, even if
// none of its steps notices the cancellation.
func TestGivenUpIsNeverReady(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var s *server
	var id ids
	begins := false
	s = w.serve(t, t.TempDir(), func(o *Options) {
		o.Target = func(context.Context, engine.Name) (Target, error) {
			if begins {
				s.Drop(id.template)
			}
			return Target{}, nil
		}
	})
	id = s.request(t, "job")
	begins = true
	must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "e2bdev/base", Steps: []Step{{Type: "ENV", Args: []string{"A", "1"}}}}))
	s.work.Wait()
	begins = false
	if status, log := s.end(t, id); status.Failure == nil || status.Failure.Message != errDeleted.Error() {
		t.Errorf("got %s %+v, want %v:\n%s", status.Status, status.Failure, errDeleted, log)
	}
}

// TestRefuse checks that a refused build has failed in its base step, with the reason. It cannot be
// refused or started again.
func TestRefuse(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	id, reason := s.request(t, "job"), errors.New("there is no such image")
	must.Is(t, s.Refuse(id.template, id.build, reason), reason)
	status, _ := s.now(t, id)
	want := Status{Status: templates.Failed, Failure: &templates.Failure{Step: stepBase, Message: reason.Error()}}
	status.Log = nil
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := s.Refuse(id.template, id.build, reason); err == nil || errors.Is(err, reason) {
		t.Errorf("again: got %v, want that it does not wait", err)
	}
	if err := s.Start(id.template, id.build, running("print")); err == nil {
		t.Error("it was started")
	}
}

// TestOtherEngineSupersedes checks that the same steps on another engine count as a different
// build, which supersedes running builds.
func TestOtherEngineSupersedes(t *testing.T) {
	t.Parallel()
	for second, want := range map[engine.Name]string{engine.Docker: "", engine.Room: errSuperseded.Error()} {
		w := newWorld()
		s := w.serve(t, t.TempDir())
		request := func(name engine.Name) ids {
			made, build, err := s.Request(templates.ParseReference("job"), nil, templates.Build{Content: templates.Content{Engine: name}})
			must.Do(t, err)
			return ids{made.ID, build.ID}
		}
		first := request(engine.Docker)
		s.begin(t, first, "block")
		patience.Receive(t, "a step that blocks", w.blocked)
		s.begin(t, request(second), "block")
		cutOff := want == "" || soon(t, func(ctx context.Context) {
			select {
			case <-s.jobs[first.build].ended:
			case <-ctx.Done():
			}
		})
		if !cutOff {
			t.Errorf("after one of %s: the first is not cut off", second)
		}
		close(w.block)
		status, _ := s.end(t, first)
		if got := status.Failure; (got != nil) != (want != "") || got != nil && got.Message != want {
			t.Errorf("after one of %s: got %s %+v, want %q", second, status.Status, got, want)
		}
	}
}

// TestStatusOfAnotherTemplate checks that the status of a build is found only with its own
// template, while the cloud runs and after a restart.
func TestStatusOfAnotherTemplate(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(), t.TempDir()
	s := w.serve(t, dir)
	one, other := s.request(t, "one"), s.request(t, "other")
	s.begin(t, one, "print")
	s.end(t, one)
	for _, when := range []string{"at once", "after a restart"} {
		for asked, want := range map[ids]bool{one: true, {other.template, one.build}: false, {one.template, other.build}: false, {"one", one.build}: false, {"none", one.build}: false, {one.template, "none"}: false} {
			if status, ok := s.Status(asked.template, asked.build); ok != want {
				t.Errorf("%s, %v: got %+v and %v, want it known: %v", when, asked, status, ok, want)
			}
		}
		s.kill(t)
		s = w.serve(t, dir)
	}
}

// TestForgetting checks that finished builds are forgotten, oldest first, once their number or
// their logs are too large. Running builds are never forgotten.
func TestForgetting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		sizes   []int // sizes of the logs, oldest first
		running []int
		want    []int // builds that remain
	}{
		{"logs at the bound", []int{maxLogs / 2, maxLogs / 2}, nil, []int{0, 1}},
		{"logs beyond it", []int{1, maxLogs / 2, maxLogs / 2}, nil, []int{1, 2}},
		{"one log beyond it", []int{1, maxLogs + 1}, nil, nil},
		{"a large log of one that runs", []int{1, maxLogs + 1, 1}, []int{1}, []int{0, 1, 2}},
		{"jobs at the bound", make([]int, maxJobs), nil, []int{0, maxJobs - 1}},
		{"jobs beyond it", make([]int, maxJobs+1), nil, []int{1, maxJobs}},
		{"beside one that runs", make([]int, maxJobs+1), []int{0}, []int{0, maxJobs}},
		{"beyond it beside one that runs", make([]int, maxJobs+2), []int{0}, []int{0, 2, maxJobs + 1}},
	} {
		b := &Builder{jobs: map[string]*job{}}
		for i, size := range tt.sizes {
			j := &job{id: fmt.Sprint(i), log: &Log{bytes: size}, status: templates.Ready}
			if slices.Contains(tt.running, i) {
				j.status = templates.Building
			}
			b.jobs[j.id], b.order = j, append(b.order, j)
		}
		b.forgetLocked()
		var left []string
		for _, j := range b.order {
			left = append(left, j.id)
			if b.jobs[j.id] != j {
				t.Errorf("%s: job %s has a place and is not known", tt.name, j.id)
			}
		}
		if len(b.jobs) != len(b.order) {
			t.Errorf("%s: %d jobs are known, and %d have a place", tt.name, len(b.jobs), len(b.order))
		}
		if tt.want == nil {
			if len(left) > 0 {
				t.Errorf("%s: got %v, want none", tt.name, left)
			}
			continue
		}
		// The first, the last, and the running ones show which remain.
		for _, i := range tt.want {
			if !slices.Contains(left, fmt.Sprint(i)) {
				t.Errorf("%s: job %d is gone", tt.name, i)
			}
		}
		if most := min(len(tt.sizes), maxJobs+len(tt.running)); len(tt.sizes) >= maxJobs && len(left) != most || len(tt.sizes) < maxJobs && len(left) != len(tt.want) {
			t.Errorf("%s: got %d jobs, want %d", tt.name, len(left), most)
		}
	}
}

// TestEndedBuildForgetsItsSpec checks that an ended build keeps no part of its spec, which may
// contain a password.
func TestEndedBuildForgetsItsSpec(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, _ := w.withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}})
	id := s.request(t, "job")
	must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "python:3", Auth: &image.Auth{Username: "me", Password: "word"}}))
	s.end(t, id)
	if diff := cmp.Diff(Spec{}, s.jobs[id.build].spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestResources checks that the sandboxes of a build's steps have the resources that the build asks
// for, that its log has them, and that the values that official clients always send ask for none.
func TestResources(t *testing.T) {
	t.Parallel()
	for asked, want := range map[[2]int]engine.Resources{
		{0, 0}: {}, {2, 0}: {CPUs: 2}, {0, 512}: {MemoryBytes: 512 << 20}, {2, 512}: {CPUs: 2, MemoryBytes: 512 << 20}, {2, 1024}: {}, {0, 1024}: {MemoryBytes: 1 << 30},
	} {
		w := newWorld()
		s := w.serve(t, t.TempDir())
		made, build, err := s.Request(templates.ParseReference("job"), nil, templates.Build{CPUs: asked[0], MemoryMB: asked[1]})
		must.Do(t, err)
		id := ids{made.ID, build.ID}
		s.begin(t, id, "print")
		_, log := s.end(t, id)
		if said := fmt.Sprintf("sandboxes have %+v", want); strings.Contains(log, said) != (want != engine.Resources{}) {
			t.Errorf("%v: want %q in the log unless it asks for none:\n%s", asked, said, log)
		}
		w.mu.Lock()
		if diff := cmp.Diff([]engine.Resources{want}, w.asked); diff != "" {
			t.Errorf("%v: sandboxes of the steps (-want +got):\n%s", asked, diff)
		}
		w.mu.Unlock()
	}
}

// TestStagesHaveSandboxesOfTheirOwn checks that each chain of a build begins with its own base,
// even if the last step of the previous chain changed nothing.
func TestStagesHaveSandboxesOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]Step{"a step that changes nothing": {Type: "WORKDIR", Args: []string{"/there"}}, "one that does": {Type: "WORKDIR", Args: []string{"/new"}}} {
		w := newWorld()
		s, _ := w.withImages(t, map[string]image.Image{"go": {Digest: "sha256:1"}, "small": {Digest: "sha256:2"}})
		s.built(t, "job", Spec{
			FromImage: "small", Stages: []Stage{{Name: "build", FromImage: "go", Steps: []Step{step}}},
			Steps: []Step{step, {Type: "RUN", Args: []string{"print"}}},
		})
		want := []string{"go", "small"}
		if name == "one that does" {
			want = []string{"go", "small", "small"}
		}
		if diff := cmp.Diff(want, w.begun); diff != "" {
			t.Errorf("%s: sandboxes began with (-want +got):\n%s", name, diff)
		}
	}
}

// TestCachedStepsAreTheSame checks that the cache distinguishes steps by all their dependencies,
// and that each build keeps its own properties.
func TestCachedStepsAreTheSame(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	copied := func(hash string) Spec {
		return Spec{FromImage: "e2bdev/base", Steps: []Step{{Type: "COPY", Args: []string{"a", "b", "", ""}, FilesHash: hash}}}
	}
	envs := func(args ...string) Spec {
		spec := Spec{FromImage: "e2bdev/base"}
		for i := 0; i < len(args); i += 2 {
			spec.Steps = append(spec.Steps, Step{Type: "ENV", Args: args[i : i+2]})
		}
		return spec
	}
	w := newWorld()
	s := w.serve(t, t.TempDir())
	for hash, text := range map[string]string{one: "first", two: "other"} {
		must.Do(t, s.Uploads().Add(hash, strings.NewReader(text), 5))
	}
	s.built(t, "copied", copied(one))
	if _, log := s.built(t, "copied", copied(two)); strings.Contains(log, "CACHED") {
		t.Errorf("other files are from the cache:\n%s", log)
	}
	if _, log := s.built(t, "copied", copied(one)); !strings.Contains(log, "CACHED") {
		t.Errorf("the same files are not from the cache:\n%s", log)
	}
	if diff := cmp.Diff([]string{"place a|/home/user/b|user||user of first", "place a|/home/user/b|user||user of other"}, w.ran); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.built(t, "more", envs("A", "1", "B", "2"))
	if build, _ := s.built(t, "less", envs("A", "1")); len(build.Envs) != 1 || build.Envs["A"] != "1" {
		t.Errorf("got the variables %v, want A only", build.Envs)
	}
	s.built(t, "child", Spec{FromTemplate: "less", Steps: envs("C", "3").Steps})
	if _, build, err := s.all.Find(templates.ParseReference("less")); err != nil || len(build.Envs) != 1 {
		t.Errorf("got the variables %v and error %v after a build from it, want A only", build.Envs, err)
	}
}

// TestCachedStepKeepsTheBuildsOwn checks that a cached step gets the engine and the commands of
// the build that uses it.
func TestCachedStepKeepsTheBuildsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir(), func(o *Options) { // steps cached for one engine fit the other
		o.Target = func(context.Context, engine.Name) (Target, error) { return Target{}, nil }
	})
	for i, name := range []engine.Name{engine.Room, engine.Docker} {
		made, build, err := s.Request(templates.ParseReference(string(name)), nil, templates.Build{Content: templates.Content{Engine: name}})
		must.Do(t, err)
		id := ids{made.ID, build.ID}
		spec := running("print")
		spec.Start, spec.Ready = fmt.Sprintf("print %d", i), "print ready"
		must.Do(t, s.Start(id.template, id.build, spec))
		_, log := s.end(t, id)
		if cached := strings.Contains(log, "CACHED [builder 1/1]"); cached != (i == 1) {
			t.Errorf("%s: from the cache: %v\n%s", name, cached, log)
		}
		if _, got, err := s.all.Find(templates.ParseReference(string(name))); err != nil || got.Engine != name || got.Start != spec.Start || got.Ready != "print ready" {
			t.Errorf("%s: got %+v and error %v, want its own engine and commands", name, got.Content, err)
		}
	}
}

// TestLaunchFailsOnLayers checks that a sandbox that does not start holds no layer, even if its
// base has layers.
func TestLaunchFailsOnLayers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	s.built(t, "job", running("print one"))
	w.fails.launch = errors.New("the disk is full")
	id := s.request(t, "next")
	s.begin(t, id, "print one", "print two")
	if status, _ := s.end(t, id); status.Failure == nil || status.Failure.Step != "2" {
		t.Errorf("got %+v, want the second step to fail", status.Failure)
	} // the rest is checked after each test
}

// TestWhereCommandsRun checks that RUN uses the user and the directory of the template, or the user
// that the step names.
func TestWhereCommandsRun(t *testing.T) {
	t.Parallel()
	root, alice := Step{Type: "USER", Args: []string{"root"}}, Step{Type: "USER", Args: []string{"alice"}}
	there, here := Step{Type: "WORKDIR", Args: []string{"/there"}}, Step{Type: "WORKDIR", Args: []string{"a"}}
	run, asRoot := Step{Type: "RUN", Args: []string{"who"}}, Step{Type: "RUN", Args: []string{"who", "root"}}
	for _, tt := range []struct {
		want  string
		steps []Step
	}{
		{"user in /home/user", []Step{run}},
		{"root in ~", []Step{asRoot}},
		{"user in /there", []Step{there, run}},
		{"root in /there", []Step{there, asRoot}},
		{"root in /root", []Step{root, run}},
		{"alice in /home/made", []Step{alice, run}},
		{"root in /root", []Step{alice, root, run}},
		{"root in /home/user/a", []Step{here, root, run}},
	} {
		s := newWorld().serve(t, t.TempDir())
		if _, log := s.built(t, "job", Spec{FromImage: "e2bdev/base", Steps: tt.steps}); !strings.Contains(log, " INFO "+tt.want+" with \n") {
			t.Errorf("want %q:\n%s", tt.want, log)
		}
	}
	s := newWorld().serve(t, t.TempDir())
	_, log := s.built(t, "job", Spec{FromImage: "e2bdev/base", Ready: "who", Steps: []Step{{Type: "ENV", Args: []string{"A", "1"}}}})
	if want := "finalize DEBUG user in /home/user with /proc\n"; !strings.Contains(log, want) {
		t.Errorf("the ready command: want %q:\n%s", want, log)
	}
}

// TestRightsOfAMadeUser checks that only a step that asks for it lets the user's programs become root.
func TestRightsOfAMadeUser(t *testing.T) {
	t.Parallel()
	for sudo, want := range map[string]string{"true": "account alice true", "false": "account alice false", "": "account alice false", "yes": "account alice false"} {
		w := newWorld()
		s := w.serve(t, t.TempDir())
		s.built(t, "job", Spec{FromImage: "e2bdev/base", Steps: []Step{{Type: "USER", Args: []string{"alice", sudo}}}})
		if !slices.Contains(w.ran, want) {
			t.Errorf("with %q: got %q, want %q", sudo, w.ran, want)
		}
	}
}

// TestRequestRefused checks that a refused request supersedes nothing.
func TestRequestRefused(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	var waiting []ids
	for range maxWaiting {
		waiting = append(waiting, s.request(t, "job", "a"))
	}
	for what, tt := range map[string]struct {
		name string
		tags []string
	}{"a name": {"No Name", []string{"a"}}, "a tag": {"job", []string{"no tag"}}} {
		if _, _, err := s.Request(templates.ParseReference(tt.name), tt.tags, templates.Build{}); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	for _, id := range waiting {
		if status, ok := s.Status(id.template, id.build); !ok || status.Status != templates.Waiting {
			t.Errorf("got %s, want a build that waits", status.Status)
		}
	}
}

// TestVariablesAreBounded checks that variables and their names share one limit.
func TestVariablesAreBounded(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{maxEnvs - 1: true, maxEnvs: true, maxEnvs + 1: false} {
		if err := checkSize(map[string]string{"A": "1", "BC": strings.Repeat("x", n-4)}); (err == nil) != want {
			t.Errorf("%d bytes: got %v, want it to be allowed: %v", n, err, want)
		}
	}
}

// TestLogBounds checks that output is bounded in lines and in bytes, with one note in the log. The
// build's own lines are not bounded in number.
func TestLogBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ size, lines int }{"lines": {1, maxLines}, "bytes": {maxLine, maxBytes / maxLine}} {
		var l Log
		line := strings.Repeat("x", tt.size)
		for range tt.lines {
			l.output(slog.LevelInfo, "1", line)
		}
		if n := len(l.entries); n != tt.lines || l.entries[n-1].Message != line {
			t.Errorf("%s at the bound: got %d lines, want %d", name, n, tt.lines)
		}
		l.output(slog.LevelInfo, "1", line)
		l.output(slog.LevelInfo, "1", line)
		l.add(slog.LevelInfo, "1", "the end")
		if n := len(l.entries); n != tt.lines+2 || !strings.HasPrefix(l.entries[n-2].Message, "there is more output") || l.entries[n-1].Message != "the end" {
			t.Errorf("%s beyond it: got %d lines, want %d, the last but one saying so", name, n, tt.lines+2)
		}
	}
}

// TestLinesAreBounded checks that the length of each line of a log is bounded, including the
// build's own lines.
func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{maxLine: maxLine, maxLine + 1: maxLine + len("…")} {
		var l Log
		l.add(slog.LevelInfo, "1", strings.Repeat("x", n))
		l.output(slog.LevelInfo, "1", strings.Repeat("x", n))
		for _, e := range l.entries {
			if len(e.Message) != want {
				t.Errorf("a line of %d bytes: got %d, want %d", n, len(e.Message), want)
			}
		}
		if l.size() != 2*want {
			t.Errorf("got the size %d, want %d", l.size(), 2*want)
		}
	}
}

// TestTail checks that a failure repeats the last lines of its own step, in order.
func TestTail(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 0, 1: 1, maxTail: maxTail, maxTail + 1: maxTail} {
		var l Log
		l.add(slog.LevelInfo, "1", "of another step")
		for i := range n {
			l.add(slog.LevelInfo, "2", fmt.Sprint(i))
		}
		got := l.tail("2")
		if len(got) != want {
			t.Errorf("%d lines: got %d, want %d", n, len(got), want)
		}
		for i, e := range got {
			if e.Message != fmt.Sprint(n-want+i) {
				t.Errorf("%d lines: line %d is %q", n, i, e.Message)
			}
		}
	}
}

// TestTurnOfABuild checks that a build runs at once if it has a place, and otherwise says that it waits. It
// waits no longer than its context, whose cause it returns.
func TestTurnOfABuild(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errDeleted)
	for taken, want := range map[int]error{maxRunning - 1: nil, maxRunning: errDeleted} {
		r := &run{Builder: &Builder{slots: make(chan struct{}, maxRunning)}, job: &job{log: &Log{}}}
		for range taken {
			r.slots <- struct{}{}
		}
		if err := r.wait(ended); !errors.Is(err, want) || r.step != stepBase || len(r.slots) != maxRunning {
			t.Errorf("with %d that run: got error %v, %d that run and the step %q, want %v", taken, err, len(r.slots), r.step, want)
		}
		var said []string
		for _, e := range r.job.log.entries {
			said = append(said, e.Step+" "+e.Message)
		}
		if text := strings.Join(said, "\n"); want == nil && text != "" || want != nil && text != "base Waiting for other builds: 4 run at once" {
			t.Errorf("with %d that run: got the log %q", taken, text)
		}
	}
}

// TestEndedBuildIsCounted checks that the end of a build makes the oldest ended build forgotten if there are
// too many.
func TestEndedBuildIsCounted(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	for i := range maxJobs {
		j := &job{id: fmt.Sprint(i), log: &Log{}, status: templates.Ready, cancel: func(error) {}}
		s.jobs[j.id], s.order = j, append(s.order, j)
	}
	id := s.request(t, "job")
	s.begin(t, id)
	s.end(t, id)
	if len(s.order) != maxJobs || len(s.jobs) != maxJobs || s.jobs["0"] != nil || s.jobs[id.build] == nil {
		t.Errorf("got %d builds in order and %d by id, want %d without the oldest", len(s.order), len(s.jobs), maxJobs)
	}
}

// TestFailureThatCannotBeStored checks that the log of the server tells of a failure that cannot be stored,
// and says nothing if the build has ended already.
func TestFailureThatCannotBeStored(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := newWorld().serve(t, t.TempDir(), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	id := s.request(t, "job")
	must.Do(t, s.all.Begin(id.template, id.build))
	storetest.FailNth(s.store, 1)
	s.fail(id.template, id.build, templates.Failure{Message: "first"})
	storetest.Mend(s.store)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "that a build failed cannot be stored") || !strings.Contains(got, "build="+id.build) {
		t.Errorf("got the log %q", got)
	}
	log.Reset()
	for _, message := range []string{"second", "third"} { // the third is too late
		s.fail(id.template, id.build, templates.Failure{Message: message})
	}
	if status, _ := s.now(t, id); log.String() != "" || status.Failure == nil || status.Failure.Message != "second" {
		t.Errorf("got %+v and the log %q, want the second failure and nothing", status.Failure, log.String())
	}
}

// brokenSharing cannot merge layers.
type brokenSharing struct{}

func (brokenSharing) Merge(context.Context, []string, string) error { return errBroken }

// TestManyLayers checks that the layers of a build are merged once they are too many, and that the build
// fails in the step whose layer cannot be merged.
func TestManyLayers(t *testing.T) {
	t.Parallel()
	lines := make([]string, layers.MaxChain+1)
	for i := range lines {
		lines[i] = fmt.Sprintf("print %d", i)
	}
	w := newWorld()
	w.sharing = lifecycletest.Sharing
	s := w.serve(t, t.TempDir())
	for n, want := range map[int]int{layers.MaxChain: layers.MaxChain, layers.MaxChain + 1: 1} {
		if build, _ := s.built(t, "job", running(lines[:n]...)); len(build.Layers) != want {
			t.Errorf("%d steps: got %d layers, want %d", n, len(build.Layers), want)
		}
	}
	w = newWorld()
	w.sharing = func() layers.Sharing { return brokenSharing{} }
	s = w.serve(t, t.TempDir())
	id := s.request(t, "job")
	s.begin(t, id, lines...)
	status, _ := s.end(t, id)
	f := status.Failure
	if f == nil || f.Step != fmt.Sprint(len(lines)) || !strings.HasPrefix(f.Message, "saving the files of the step: ") || !strings.HasSuffix(f.Message, errBroken.Error()) {
		t.Errorf("got %s %+v, want the last step to fail with %v", status.Status, f, errBroken)
	}
}
