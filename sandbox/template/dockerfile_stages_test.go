package template

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// staged is all that is built of a definition: the stages that are copied from, and its own
// steps.
func staged(d Definition) string {
	all := ""
	for _, s := range d.stages {
		all += fmt.Sprintf("<%s> %s\n%s\n", s.name, s.image, lines(Definition{steps: s.steps}))
	}
	return all + "<> " + d.image + "\n" + lines(d)
}

func TestStages(t *testing.T) {
	t.Parallel()
	const begin = "\nUSER root\nWORKDIR /\n"
	tests := []struct{ name, target, text, want, start string }{
		{
			name: "copied from by name", text: "FROM go AS Build\nRUN make\nFROM x\nCOPY --from=build --chown=1:2 --chmod=755 /out/a /out/b /bin/",
			want: "<build> go" + begin + "RUN make\n<> x" + begin + "COPY<build> /out/a|/bin/|1:2|0755\nCOPY<build> /out/b|/bin/|1:2|0755" + defaults,
		},
		{
			name: "copied from by number, and from images", text: "FROM go\nFROM y\nFROM x\nCOPY --from=0 /a /b\nCOPY --from=q:1 /c /d\nCOPY --from=Q:1 /c /d\nCOPY --from=q:1 /e /f",
			want: "<0> go" + begin + "<image q:1> q:1\n\n<image Q:1> Q:1\n\n<> x" + begin +
				"COPY<0> /a|/b||\nCOPY<image q:1> /c|/d||\nCOPY<image Q:1> /c|/d||\nCOPY<image q:1> /e|/f||" + defaults,
		},
		{
			name: "only what is needed, in order", text: "FROM a AS a\nRUN a\nFROM b AS b\nRUN b\nFROM c AS c\nCOPY --from=a /a /a\nFROM d AS d\nRUN d\nFROM x\nCOPY --from=c /c /c\nCOPY --from=c /d /d",
			want: "<a> a" + begin + "RUN a\n<c> c" + begin + "COPY<a> /a|/a||\n<> x" + begin + "COPY<c> /c|/c||\nCOPY<c> /d|/d||" + defaults,
		},
		{
			name: "a stage that begins with another one", text: "FROM x AS base\nENV A=1\nUSER me\nCMD [\"old\"]\nENTRYPOINT [\"run\"]\nFROM base AS next\nWORKDIR /$A\nCMD [\"it\"]",
			want: "<> x" + begin + "ENV A|1\nUSER me\nWORKDIR /1", start: "run it",
		},
		{
			name: "another entry point drops the arguments", text: "FROM x AS base\nENTRYPOINT [\"run\"]\nCMD [\"old\"]\nFROM base\nENTRYPOINT [\"new\"]",
			want: "<> x" + begin + defaults[1:], start: "new",
		},
		{
			name: "what the first one copied from is needed, too", text: "FROM a AS a\nFROM x AS base\nCOPY --from=a /a /a\nFROM base\nRUN b",
			want: "<a> a" + begin + "<> x" + begin + "COPY<a> /a|/a||\nRUN b" + defaults,
		},
		{
			name: "a target", target: "one", text: "FROM x AS one\nRUN 1\nFROM y AS two\nRUN 2", want: "<> x" + begin + "RUN 1" + defaults,
		},
		{
			name: "a target by number", target: "1", text: "FROM x AS one\nFROM y\nRUN 2\nFROM z", want: "<> y" + begin + "RUN 2" + defaults,
		},
		{
			name: "a stage by the number of a name", text: "FROM go AS build\nRUN make\nFROM x\nCOPY --from=0 /a /b",
			want: "<build> go" + begin + "RUN make\n<> x" + begin + "COPY<build> /a|/b||" + defaults,
		},
		{
			name: "a stage of a special name", text: "FROM go AS scratch\nFROM x\nCOPY --from=Scratch /a /b",
			want: "<scratch> go" + begin + "<> x" + begin + "COPY<scratch> /a|/b||" + defaults,
		},
		{
			name: "stages with one beginning share no arguments", text: "FROM x AS a\nFROM a AS b\nARG V=1\nFROM a\nWORKDIR /$V",
			want: "<> x" + begin + "WORKDIR /$V\nUSER user",
		},
		{
			name: "stages with one beginning share no ENV", text: "FROM x AS a\nFROM a AS b\nENV V=1\nFROM a\nARG V=2\nUSER me",
			want: "<> x" + begin + "ENV V|2\nUSER me\nWORKDIR /home/user",
		},
		{
			name: "arguments end with their stage", text: "ARG V=1\nFROM x:$V AS one\nARG W=2\nENV E=3\nFROM y:$V\nRUN a\nWORKDIR /$V$W$E",
			want: "<> y:1" + begin + "RUN a\nWORKDIR /$V$W$E\nUSER user",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := FromDockerfile(strings.NewReader(test.text), &DockerfileParams{Target: test.target})
			must.Do(t, d.err)
			if diff := cmp.Diff(test.want, staged(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.start != test.start {
				t.Errorf("start: got %q, want %q", d.start, test.start)
			}
		})
	}
}

// stageMistakes are mistakes with stages.
var stageMistakes = map[string]string{
	"FROM x AS 1":                         `line 1: "1" cannot be the name of a stage`,
	"FROM x:$V\nARG V=1":                  "line 1: the image",
	"FROM x\nARG V=1\nFROM y:$V":          "line 3: the image \"y:$V\" is not known",
	"FROM x AS a\nCOPY --from=a b c":      "line 2: COPY --from=a: a stage cannot copy from itself",
	"FROM x\nCOPY --from=0 b c":           "line 2: COPY --from=0: a stage cannot copy from itself",
	"FROM x\nCOPY --from=1 b c\nFROM y":   "line 2: COPY --from=1: there is no stage of that number before",
	"FROM x\nCOPY --from=-1 b c\nFROM y":  "line 2: COPY --from=-1: there is no stage of that number before",
	"FROM x\nCOPY --from=y b \"\"":        "line 2: COPY --from has an empty source or target",
	"FROM x\nCOPY --from=scratch b c":     "line 2: COPY --from=scratch: there is nothing in it",
	"FROM x\nCOPY --from=$A b c":          "line 2: COPY --from=$A: variables are not known here: name it by a stage, FROM $A AS name",
	"FROM x\nCOPY --from=y \"\" c":        "line 2: COPY --from has an empty source",
	"FROM x\nCOPY --from=y --chmod=9 b c": "line 2: --chmod=9 is not an octal mode",
}

func TestStagesRefuse(t *testing.T) {
	t.Parallel()
	for text, want := range stageMistakes {
		if d := FromDockerfile(strings.NewReader(text), nil); d.err == nil || !strings.Contains(d.err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", text, d.err, want)
		}
	}
	d := FromDockerfile(strings.NewReader("FROM x AS one\nFROM y"), &DockerfileParams{Target: "two"})
	if want := `Dockerfile: it has no stage "two" to build; it has one, 1`; d.err == nil || d.err.Error() != want {
		t.Errorf("got error %v, want %s", d.err, want)
	}
}

// Stages are sent to a service that builds them, with the files that they copy; others are
// asked for nothing.
func TestBuildStages(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"main.go": "m"})
	d := FromDockerfile(strings.NewReader("FROM go AS build\nCOPY main.go .\nRUN make\nFROM x\nCOPY main.go .\nCOPY --from=build /a /b\nWORKDIR /\nUSER me"), nil)
	f := &fake{}
	_, err := Start(t.Context(), f.templates(t), "name", d, &BuildParams{Dir: dir})
	if want := "stages of a build, of which COPY --from takes files: only the local cloud builds them"; !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want errors.ErrUnsupported with %q", err, want)
	}
	if len(f.asked) > 0 {
		t.Errorf("got the calls %v, want none", f.asked)
	}
	f = &fake{stages: true, states: []api.BuildState{{Status: api.BuildError, Failure: &api.BuildFailure{Step: "build/4", Message: "no make"}}}}
	built, err := Start(t.Context(), f.templates(t), "name", d, &BuildParams{Dir: dir})
	must.Do(t, err)
	if len(f.uploaded) != 1 {
		t.Errorf("got the uploads %v, want one", f.uploaded)
	}
	hash := built.stages[0].steps[2].FilesHash
	none := func(kind string, args ...any) any {
		return map[string]any{"type": kind, "args": args, "force": false}
	}
	copied := map[string]any{"type": "COPY", "args": []any{"main.go", ".", "", ""}, "filesHash": hash, "force": false}
	want := map[string]any{
		"fromImage": "x", "force": false,
		"stages": []any{map[string]any{"name": "build", "fromImage": "go", "steps": []any{none("USER", "root"), none("WORKDIR", "/"), copied, none("RUN", "make")}}},
		"steps": []any{
			none("USER", "root"), none("WORKDIR", "/"), copied,
			map[string]any{"type": "COPY", "args": []any{"/a", "/b", "", ""}, "fromStage": "build", "force": false}, none("WORKDIR", "/"), none("USER", "me"),
		},
	}
	if diff := cmp.Diff(any(want), any(f.started)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	failed, ok := errors.AsType[*BuildError](Wait(t.Context(), f.templates(t), built, nil))
	if !ok || failed.Step != "build/4" || failed.Instruction != "RUN make" {
		t.Errorf("got %+v, want the step of the stage", failed)
	}
	for called, want := range map[string]string{"4": "COPY --from=build /a /b", "build/9": "", "other/1": "", "/1": "", "base": "", "build/base": "", "0": "", "": ""} {
		if got := built.instruction(called); got != want {
			t.Errorf("%s: got %q, want %q", called, got, want)
		}
	}
}
