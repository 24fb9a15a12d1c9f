package template

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSteps checks the step of each method of a definition, without parameters and with all of them.
func TestSteps(t *testing.T) {
	t.Parallel()
	d := FromBase()
	const apt = "RUN apt-get update && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y"
	for _, tt := range []struct {
		d    Definition
		want string
	}{
		{d.Copy("a", "/b", nil), "COPY a|/b||"},
		{d.Copy("a", "/b", &CopyParams{User: "me:us", Mode: 0o640}), "COPY a|/b|me:us|0640"},
		{d.Copy("a", "/b", &CopyParams{Mode: 0o755 | fs.ModeSetuid}), "COPY a|/b||4755"},
		{d.Run("make  all", nil), "RUN make  all"},
		{d.Run("make", &RunParams{User: "me"}), "RUN make|me"},
		{d.Workdir("/a"), "WORKDIR /a"},
		{d.User("me"), "USER me"},
		{d.Env(nil), ""},
		{d.Env(map[string]string{"B": "2", "A": "$B", "C": ""}), "ENV A|$B|B|2|C|"},
		{d.Remove("it's", nil), `RUN rm 'it'\''s'`},
		{d.Remove("a", &RemoveParams{Recursive: true, Force: true, User: "me"}), "RUN rm -r -f a|me"},
		{d.Remove("a", &RemoveParams{Recursive: true}), "RUN rm -r a"},
		{d.Remove("a", &RemoveParams{Force: true}), "RUN rm -f a"},
		{d.Rename("a b", "c", nil), "RUN mv 'a b' c"},
		{d.Rename("a", "b c", &RenameParams{Force: true, User: "me"}), "RUN mv a 'b c' -f|me"},
		{d.MakeDir("a b", nil), "RUN mkdir -p 'a b'"},
		{d.MakeDir("a", &MakeDirParams{Mode: 0o700 | fs.ModeSticky, User: "me"}), "RUN mkdir -p -m 1700 a|me"},
		{d.Symlink("a", "b c", nil), "RUN ln -s a 'b c'"},
		{d.Symlink("a b", "c", &SymlinkParams{Force: true, User: "me"}), "RUN ln -s -f 'a b' c|me"},
		{d.Pip(nil, nil), "RUN pip install .|root"},
		{d.Pip([]string{"a", "b>=1"}, &PipParams{User: true}), "RUN pip install --user a b>=1"},
		{d.Npm(nil, nil), "RUN npm install"},
		{d.Npm([]string{"a", "b"}, &NpmParams{Global: true, Dev: true}), "RUN npm install -g --save-dev a b|root"},
		{d.Npm([]string{"a"}, &NpmParams{Dev: true}), "RUN npm install --save-dev a"},
		{d.Bun(nil, nil), "RUN bun install"},
		{d.Bun([]string{"a", "b"}, &NpmParams{Global: true, Dev: true}), "RUN bun install -g --dev a b|root"},
		{d.Bun([]string{"a"}, &NpmParams{Dev: true}), "RUN bun install --dev a"},
		{d.Apt([]string{"a", "b"}, nil), apt + " a b|root"},
		{d.Apt([]string{"a"}, &AptParams{NoRecommends: true, FixMissing: true}), apt + " --no-install-recommends --fix-missing a|root"},
		{d.GitClone("https://host/a b", nil), "RUN git clone 'https://host/a b'"},
		{d.GitClone("u", &GitCloneParams{Path: "p q", Branch: "b c", Depth: 1, User: "me"}), "RUN git clone u --branch 'b c' --single-branch --depth 1 'p q'|me"},
		{d.GitClone("u", &GitCloneParams{Depth: -1}), "RUN git clone u"},
	} {
		if got := lines(tt.d); got != tt.want || tt.d.err != nil {
			t.Errorf("got %s and error %v, want %s", got, tt.d.err, tt.want)
		}
		for _, s := range tt.d.steps {
			if s.Force || (s.copy != nil) != (s.Type == "COPY") {
				t.Errorf("%s: got %+v", tt.want, s)
			}
		}
	}
	forced := d.Copy("a", "b", &CopyParams{Upload: true}).Copy("c", "d", nil).SkipCache().Run("e", nil).Copy("f", "g", nil)
	for i, want := range []bool{true, false, true, true} {
		if forced.steps[i].Force != want {
			t.Errorf("the step %d is repeated: %v, want %v", i, forced.steps[i].Force, want)
		}
	}
	for name, failed := range map[string]Definition{"Apt: no packages": d.Apt(nil, nil).Run("", nil), "Run: the command is empty": d.Run("  \n", &RunParams{User: "me"}).Apt(nil, nil)} {
		if failed.err == nil || failed.err.Error() != name || len(failed.steps) != 0 {
			t.Errorf("got error %v and %d steps, want the first one: %s", failed.err, len(failed.steps), name)
		}
	}
}

// TestReadyCommands checks the command of each way to wait.
func TestReadyCommands(t *testing.T) {
	t.Parallel()
	for got, want := range map[ReadyCommand]string{
		WaitPort(80): `[ -n "$(ss -Htuln sport = :80)" ]`, WaitURL("http://a/?b=c&d", 204): `curl -s -o /dev/null -w "%{http_code}" 'http://a/?b=c&d' | grep -q "204"`,
		WaitProcess("a b"): "pgrep 'a b' > /dev/null", WaitFile("/a b"): "[ -f '/a b' ]",
		WaitFor(0): "sleep 1", WaitFor(1999 * time.Millisecond): "sleep 1", WaitFor(2 * time.Second): "sleep 2", WaitFor(-time.Hour): "sleep 1",
	} {
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestStartedBuild checks every field of the request that starts a build.
func TestStartedBuild(t *testing.T) {
	t.Parallel()
	registry := api.ImageRegistry{Username: "u", Password: "p"}
	login := &ImageParams{Registry: &registry}
	image := FromImage("debian:stable", login)
	registry.Username = "changed later"
	run := func(user ...string) []any {
		args := []any{"true"}
		for _, u := range user {
			args = append(args, u)
		}
		return []any{map[string]any{"type": "RUN", "args": args, "force": false}}
	}
	for name, tt := range map[string]struct {
		d    Definition
		p    *BuildParams
		want map[string]any
	}{
		"the base": {FromBase(), nil, map[string]any{"fromImage": baseImage, "force": false}},
		"an image": {image.Run("true", nil).Start("serve", WaitPort(80)), nil, map[string]any{
			"fromImage": "debian:stable", "force": false, "steps": run(), "startCmd": "serve", "readyCmd": string(WaitPort(80)),
			"fromImageRegistry": map[string]any{"type": "registry", "username": "u", "password": "p"},
		}},
		"a template": {FromTemplate("other").Run("true", &RunParams{User: "me"}).Ready("ok"), &BuildParams{NoCache: true}, map[string]any{
			"fromTemplate": "other", "force": true, "steps": run("me"), "readyCmd": "ok",
		}},
	} {
		f := &fake{}
		built, err := Start(t.Context(), f.templates(t), "name", tt.d, tt.p)
		must.Do(t, err)
		got := f.started
		if list, ok := got["steps"].([]any); ok && len(list) == 0 {
			delete(got, "steps")
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		want := &Built{TemplateID: "t", BuildID: "b", Name: "name", Names: []string{"team/a"}, Tags: []string{"default"}}
		built.steps, built.stages = nil, nil
		if diff := cmp.Diff(want, built, cmp.AllowUnexported(Built{})); diff != "" {
			t.Errorf("%s: the build (-want +got):\n%s", name, diff)
		}
	}
}

// TestModes checks that modes of files and bits of Unix stand for each other.
func TestModes(t *testing.T) {
	t.Parallel()
	for mode, bits := range map[fs.FileMode]uint32{
		0: 0o100000, 0o777: 0o100777, 0o640: 0o100640, fs.ModeDir | 0o755: 0o040755, fs.ModeSymlink | 0o777: 0o120777, fs.ModeNamedPipe | 0o600: 0o600,
		fs.ModeSetuid | 0o755: 0o104755, fs.ModeSetgid | 0o755: 0o102755, fs.ModeSticky | fs.ModeDir | 0o777: 0o041777, fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky: 0o107000,
	} {
		if got := unixMode(mode); got != bits {
			t.Errorf("%v: got %o, want %o", mode, got, bits)
		}
		if got := fileMode(bits); got != mode&^fs.ModeType {
			t.Errorf("%o: got %v, want %v", bits, got, mode&^fs.ModeType)
		}
	}
	for mode, want := range map[fs.FileMode]string{0: "0000", 0o7: "0007", 0o755: "0755", fs.ModeSetgid | 0o750: "2750", fs.ModeDir | 0o700: "0700"} {
		if got := octal(mode); got != want {
			t.Errorf("%v: got %s, want %s", mode, got, want)
		}
	}
}

// TestReaches checks which patterns may match a file in a directory.
func TestReaches(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{
		"a/b/c": true, "a/b/c/d": true, "a/b": false, "a": false, "a/x/c": false, "x/b/c": false, "*/b/c": true, "a/?/c": true, "a/[b]/c": true, `a/\b/c`: true,
		"**": true, "a/**": true, "a/**/c": true, "x/**": false, "**/c": true, "a/b**": true, "a/b/*": true,
	} {
		if got := reaches(strings.Split(pattern, "/"), []string{"a", "b"}); got != want {
			t.Errorf("%s: got %v, want %v", pattern, got, want)
		}
	}
}

// TestControls checks which parts of a log's lines are for a terminal.
func TestControls(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain\ttext\nü": "plain\ttext\nü", "\x1b[1;31mred\x1b[0m": "red", "a\rb\x00c\x7fd": "abcd", "\x1b]0;title\x07after": "after", "\x1b]8;;u\x1b\\link": "link",
		"\x1b[2Kline\x1b[1A": "line", "\x1bM": "", "\x1b(B": "", "[0m": "[0m", "\u009b31mred": "red",
	} {
		if got := withoutControls(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestTextOfAFailure checks what an error says about a failed build, field by field.
func TestTextOfAFailure(t *testing.T) {
	t.Parallel()
	built := &Built{TemplateID: "t", BuildID: "b", Name: "n", steps: FromBase().Run("make", nil).steps}
	long := strings.Repeat("x", 2*maxReason)
	logs := []api.BuildLogEntry{{Message: "last"}}
	for name, tt := range map[string]struct {
		built *Built
		state api.BuildState
		want  BuildError
		text  string
	}{
		"all": {built, api.BuildState{Status: api.BuildError, Failure: &api.BuildFailure{Step: "1", Message: "\x1b[1mit\nbroke"}},
			BuildError{TemplateID: "t", BuildID: "b", Name: "n", Step: "1", Instruction: "RUN make", Reason: "it broke", Logs: logs}, `template: build b of "n" failed, step 1 (RUN make): it broke`},
		"nothing": {&Built{TemplateID: "t", BuildID: "b"}, api.BuildState{Status: "gone"},
			BuildError{TemplateID: "t", BuildID: "b", Reason: `its status is "gone"`, Logs: logs}, `template: build b of "t" failed: its status is "gone"`},
		"no reason": {built, api.BuildState{Status: api.BuildError, Failure: &api.BuildFailure{Step: "base"}},
			BuildError{TemplateID: "t", BuildID: "b", Name: "n", Step: "base", Reason: `its status is "error"`, Logs: logs}, `template: build b of "n" failed, step base: its status is "error"`},
	} {
		w := waiting{built: tt.built, last: logs}
		failed, ok := errors.AsType[*BuildError](w.failure(&tt.state))
		if !ok {
			t.Fatalf("%s: got another error", name)
		}
		if diff := cmp.Diff(tt.want, *failed); diff != "" || failed.Error() != tt.text {
			t.Errorf("%s: got %s (-want +got):\n%s", name, failed, diff)
		}
	}
	w := waiting{built: built}
	failed, _ := errors.AsType[*BuildError](w.failure(&api.BuildState{Failure: &api.BuildFailure{Step: long, Message: long}}))
	if failed == nil || len(failed.Step) > maxStep+len("…") || len(failed.Reason) > maxReason+len("…") {
		t.Errorf("a long failure: got %+v", failed)
	}
	for want, s := range map[string]step{
		"COPY a /b": FromBase().Copy("a", "/b", nil).steps[0], "COPY a /b me 0600": FromBase().Copy("a", "/b", &CopyParams{User: "me", Mode: 0o600}).steps[0],
		"RUN make": FromBase().Run("make", &RunParams{User: "me"}).steps[0], "ENV A B": FromBase().Env(map[string]string{"A": "secret", "B": "secret"}).steps[0],
	} {
		if got := s.describe(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestPacesOfAWait checks when a build is asked about: often while its log grows, and more rarely without news.
func TestPacesOfAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{lines: 4, states: slices.Repeat([]api.BuildState{{Status: api.BuildBuilding}}, 12)}
		f.states = append(f.states, api.BuildState{Status: api.BuildReady})
		began := time.Now()
		var logged []time.Duration
		err := Wait(t.Context(), f.templates(t), &Built{TemplateID: "t", BuildID: "b"}, &WaitParams{Log: func(api.BuildLogEntry) { logged = append(logged, time.Since(began)) }})
		must.Do(t, err)
		// Two answers have lines. Then the pause grows by half each time, up to the slowest.
		want := fastest
		for pause, n := fastest, 0; n < 11; n++ {
			if n > 0 {
				pause = min(pause*3/2, slowest)
			}
			want += pause
		}
		if took := time.Since(began); took != want || len(f.asked) != 13 {
			t.Errorf("got %d answers in %v, want 13 in %v", len(f.asked), took, want)
		}
		if diff := cmp.Diff([]time.Duration{0, 0, 0, fastest}, logged); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		f = &fake{lines: 7, states: []api.BuildState{{Status: api.BuildReady}}}
		w := waiting{templates: f.templates(t), built: &Built{TemplateID: "t", BuildID: "b"}}
		if _, err := w.untilEnd(t.Context()); err != nil || w.offset != 7 || len(w.last) != 7 || len(f.asked) != 4 {
			t.Errorf("the rest of the log: got %d lines, %d of them kept, in %d answers, and error %v", w.offset, len(w.last), len(f.asked), err)
		}
	})
}

// TestOutageOfAWait checks for how long a service may give no answer, and which errors end a wait at once.
func TestOutageOfAWait(t *testing.T) {
	t.Parallel()
	const status = "GET /templates/t/builds/b/status"
	built := &Built{TemplateID: "t", BuildID: "b"}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Wait(t.Context(), (&fake{away: map[string]int{status: 1000}}).templates(t), built, nil)
		if took := time.Since(began); !errors.Is(err, api.ErrUnavailable) || took <= outage || took > outage+slowest || !strings.Contains(err.Error(), "template: wait for build b of template t: ") {
			t.Errorf("without an answer: got error %v after %v", err, took)
		}
		began = time.Now()
		err = Wait(t.Context(), (&fake{fail: map[string]int{status: 404}}).templates(t), built, nil)
		if took := time.Since(began); !errors.Is(err, api.ErrNotFound) || took != 0 {
			t.Errorf("an unknown build: got error %v after %v", err, took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the user has gone")
		cancel(cause)
		if err := Wait(ctx, (&fake{states: []api.BuildState{{}}}).templates(t), built, nil); !errors.Is(err, cause) {
			t.Errorf("without a caller: got error %v, want %v", err, cause)
		}
	})
}

// TestAnswersDuringAWait checks that an answer ends an outage, that a build which is ready stays ready
// for a caller who has just gone, and that a lost rest of the log is an error.
func TestAnswersDuringAWait(t *testing.T) {
	t.Parallel()
	const status = "GET /templates/t/builds/b/status"
	built := &Built{TemplateID: "t", BuildID: "b"}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{states: slices.Repeat([]api.BuildState{{Status: api.BuildBuilding}}, 60), away: map[string]int{}}
		f.states = append(f.states, api.BuildState{Status: api.BuildReady})
		go func() {
			<-time.After(outage + 10*time.Second)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.away[status] = 20
		}()
		must.Do(t, Wait(t.Context(), f.templates(t), built, nil))
	})
	f := &fake{states: []api.BuildState{{Status: api.BuildReady}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	must.Do(t, Wait(ctx, templatesBy(t, around{f, func(r *http.Request) (*http.Response, error) {
		answer, err := f.RoundTrip(r)
		cancel()
		return answer, err
	}}), built, nil))
	f = &fake{states: []api.BuildState{{Status: api.BuildReady}}, lines: 7, fail: map[string]int{}}
	err := Wait(t.Context(), f.templates(t), built, &WaitParams{Log: func(api.BuildLogEntry) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fail[status] = http.StatusNotFound
	}})
	must.Is(t, err, api.ErrNotFound)
}
