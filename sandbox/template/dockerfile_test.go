package template

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// lines are the steps of a definition, one a line.
func lines(d Definition) string {
	var all []string
	for _, s := range d.steps {
		all = append(all, s.Type+" "+strings.Join(s.Args, "|"))
	}
	return strings.Join(all, "\n")
}

const defaults = "\nUSER user\nWORKDIR /home/user"

func TestDockerfile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text   string
		args         map[string]string
		want         string // the steps after USER root and WORKDIR /
		start, image string
		warnings     []string
	}{
		{name: "least", text: "FROM x", want: defaults[1:], image: "x"},
		{name: "own user and directory", text: "FROM x\nUSER me\nWORKDIR /srv", want: "USER me\nWORKDIR /srv"},
		{name: "variables", text: "FROM x\nENV A=/srv\nENV B=\"$A/b\" C='$A'\nENV PATH=$PATH:/x\nENV old way\nWORKDIR $B\nCOPY .${A}/x $UNKNOWN/y", want: "ENV A|/srv\nENV B|$A/b|C|$A\nENV PATH|$PATH:/x\nENV old|way\nWORKDIR /srv/b\nCOPY ./srv/x|$UNKNOWN/y||\nUSER user"},
		{name: "arguments", text: "ARG TAG=1\nFROM x:$TAG\nARG TAG\nARG N=2 M\nRUN echo $N", args: map[string]string{"M": "given", "Z": "z"}, image: "x:1",
			want: "ENV TAG|1\nENV TAG|\nENV N|2|M|given\nRUN echo $N" + defaults, warnings: []string{"Dockerfile: no ARG declares the build argument Z"}},
		{name: "copies", text: "FROM x\nCOPY --chown=a:b --chmod=750 a b /to/\nADD c /d\nCOPY [\"with space\", \"/e f\"]", want: "COPY a|/to/|a:b|0750\nCOPY b|/to/|a:b|0750\nCOPY c|/d||\nCOPY with space|/e f||" + defaults},
		{name: "shell command", text: "FROM x\nCMD run it", want: defaults[1:], start: "run it"},
		{name: "list command", text: "FROM x\nCMD [\"run\", \"it now\"]", want: defaults[1:], start: "run 'it now'"},
		{name: "entry point and arguments", text: "FROM x\nENTRYPOINT [\"run\"]\nCMD [\"it\"]", want: defaults[1:], start: "run it"},
		{name: "entry point and shell command", text: "FROM x\nENTRYPOINT [\"run\"]\nCMD a b", want: defaults[1:], start: "run /bin/sh -c 'a b'"},
		{name: "shell entry point", text: "FROM x\nENTRYPOINT run me\nCMD [\"it\"]", want: defaults[1:], start: "run me"},
		{name: "escape", text: "# escape=`\nFROM x\nRUN a `\n  b", want: "RUN a   b" + defaults},
		{name: "what is left out", text: "FROM --platform=linux/amd64 x\nEXPOSE 80\nLABEL a=b\nHEALTHCHECK NONE\nRUN --mount=type=cache,target=/x y", want: "RUN y" + defaults, warnings: []string{
			"Dockerfile: line 1: --platform of FROM is not supported, and left out",
			"Dockerfile: line 4: HEALTHCHECK is not supported, and left out",
			"Dockerfile: line 5: --mount of RUN is not supported, and left out",
		}},
		{name: "script", text: "FROM x\nRUN <<EOF\none\ntwo $A\nEOF", want: "RUN one\ntwo $A\n" + defaults},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := FromDockerfile(strings.NewReader(test.text), &DockerfileParams{Args: test.args})
			if d.err != nil {
				t.Fatal(d.err)
			}
			if diff := cmp.Diff("USER root\nWORKDIR /\n"+test.want, lines(d)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if d.start != test.start || test.start != "" && d.ready != "sleep 20" {
				t.Errorf("start: got %q when %q, want %q", d.start, d.ready, test.start)
			}
			if test.image != "" && d.image != test.image {
				t.Errorf("image: got %q, want %q", d.image, test.image)
			}
			if diff := cmp.Diff(test.warnings, d.Warnings()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDockerfileRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "no instructions",
		"RUN x":                                "no FROM",
		"RUN x\nFROM y":                        "line 1: RUN before FROM",
		"FROM a\nFROM b":                       "line 2: a second FROM: several stages are not supported",
		"FROM a b":                             "FROM wants an image",
		"FROM x:$TAG":                          `the image "x:$TAG" is not known`,
		"ARG T\nFROM $T":                       "is not known",
		"FROM x\nCOPY --from=y a b":            "COPY --from=y: there are no other stages",
		"FROM x\nCOPY a":                       "line 2",
		"FROM x\nCOPY --chmod=u+x a b":         "--chmod=u+x is not an octal mode",
		"FROM x\nCOPY --chowns=a a b":          "COPY has no flag --chowns",
		"FROM x\nCOPY --chown a b":             "has no value",
		"FROM x\nCOPY --chown=a --chown=b a b": "is there twice",
		"FROM x\nCOPY ../a b":                  "leads out",
		"FROM x\nADD https://a.b/c /d":         "addresses are not supported",
		"FROM x\nWORKDIR a b":                  "",
		"FROM x\nUSER":                         "line 2",
		"FROM x\nENV a":                        "ENV must have two arguments",
		"FROM x\nRUN <<EOF\nopen":              "unterminated heredoc",
		"FROM x\nRUN --what=1 y":               "RUN has no flag --what",
		strings.Repeat("#", maxDockerfile+1):   "longer than",
	} {
		d := FromDockerfile(strings.NewReader(text), nil)
		if want != "" && (d.err == nil || !strings.Contains(d.err.Error(), want)) {
			t.Errorf("%.60q: got error %v, want one with %q", text, d.err, want)
		}
	}
	broken := errors.New("the disk is gone")
	if d := FromDockerfile(iotest.ErrReader(broken), nil); !errors.Is(d.err, broken) {
		t.Errorf("got %v, want the reader's error", d.err)
	}
}

// FuzzDockerfile looks for files that make the conversion panic, or steps that no service
// takes.
func FuzzDockerfile(f *testing.F) {
	for _, text := range []string{
		"FROM x\nRUN <<EOF\n#!/bin/sh\nx\nEOF\nCOPY <<A <<'B' /x/\n$a `b` \\c\nA\nt\nB\n", "# escape=`\nFROM x\nCMD [\"a\"]", "ARG A=${B:-c}\nFROM $A\nENV C=${A#c}",
		"FROM x\nCOPY --chmod=7777 a b\nENTRYPOINT [\"a\"]\nCMD b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := FromDockerfile(strings.NewReader(text), &DockerfileParams{Args: map[string]string{"A": "b"}})
		if d.err != nil {
			return
		}
		for _, s := range d.steps {
			want := map[string]int{"COPY": 4, "WORKDIR": 1, "USER": 1}[s.Type]
			if want != 0 && len(s.Args) != want || s.Type == "ENV" && len(s.Args)%2 != 0 {
				t.Errorf("%q: step %+v", text, s.BuildStep)
			}
		}
	})
}
