package template

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/e2bctl/e2bctl/internal/must"
)

// lines are the steps of a definition, one a line.
func lines(d Definition) string {
	var all []string
	for _, s := range d.steps {
		from := ""
		if s.FromStage != "" {
			from = "<" + s.FromStage + ">"
		}
		all = append(all, s.Type+from+" "+strings.Join(s.Args, "|"))
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
		{name: "variables", text: "FROM x\nENV A=/srv\nENV B=\"$A/b\" C='$A'\nENV PATH=$PATH:/x\nENV old way\nWORKDIR $B\nCOPY .${A}/x $UNKNOWN/y", want: "ENV A|/srv\nENV B|/srv/b|C|\\$A\nENV PATH|$PATH:/x\nENV old|way\nWORKDIR /srv/b\nCOPY ./srv/x|$UNKNOWN/y||\nUSER user"},
		{name: "arguments", text: "ARG TAG=1\nFROM x:$TAG\nARG TAG\nARG N=2 M\nRUN echo $N", args: map[string]string{"M": "given", "Z": "z"}, image: "x:1",
			want: "ENV TAG|1\nENV N|2|M|given\nRUN echo $N" + defaults, warnings: []string{"Dockerfile: no ARG declares the build argument Z"}},
		{name: "copies", text: "FROM x\nCOPY --chown=a:b --chmod=750 a b /to/\nADD c /d\nCOPY [\"with space\", \"/e f\"]", want: "COPY a|/to/|a:b|0750\nCOPY b|/to/|a:b|0750\nCOPY c|/d||\nCOPY with space|/e f||" + defaults},
		{name: "copies after another user", text: "FROM x\nCOPY a b\nUSER me\nCOPY a b\nCOPY --chown=me a b\nWORKDIR /", want: "COPY a|b||\nUSER me\nCOPY a|b|root|\nCOPY a|b|me|\nWORKDIR /"},
		{name: "user by ids of arguments", text: "FROM x\nARG UID=1000 GID=2\nUSER ${UID}:${GID}\nWORKDIR /", want: "ENV UID|1000|GID|2\nUSER 1000:2\nWORKDIR /"},
		{name: "shell command", text: "FROM x\nCMD run it", want: defaults[1:], start: "run it"},
		{name: "list command", text: "FROM x\nCMD [\"run\", \"it now\"]", want: defaults[1:], start: "run 'it now'"},
		{name: "entry point and arguments", text: "FROM x\nENTRYPOINT [\"run\"]\nCMD [\"it\"]", want: defaults[1:], start: "run it"},
		{name: "entry point and shell command", text: "FROM x\nENTRYPOINT [\"run\"]\nCMD a b", want: defaults[1:], start: "run /bin/sh -c 'a b'"},
		{name: "shell entry point", text: "FROM x\nENTRYPOINT run me\nCMD [\"it\"]", want: defaults[1:], start: "run me"},
		{name: "escape", text: "# escape=`\nFROM x\nRUN a `\n  b", want: "RUN a   b" + defaults},
		{name: "what is left out", text: "FROM --platform=linux/amd64 x\nEXPOSE 80\nLABEL a=b\nVOLUME /v\nMAINTAINER me\nRUN --mount=type=cache,target=/x --network=default y\nARG TARGETARCH\nCOPY --link a b", want: "RUN y\nENV TARGETARCH|\nCOPY a|b||" + defaults, warnings: []string{
			"Dockerfile: line 6: --mount=type=cache of RUN is not supported, and left out",
			"Dockerfile: line 7: ARG TARGETARCH has no value unless it is given as a build argument",
		}},
		{name: "ARG after ENV, until the stage ends", text: "FROM x AS a\nENV A=1\nARG A=2\nWORKDIR /$A\nFROM a\nWORKDIR /$A", want: "ENV A|1\nENV A|2\nWORKDIR /2\nENV A|1\nWORKDIR /1\nUSER user"},
		{name: "a build argument after ENV", text: "FROM x\nENV A=1\nARG A\nWORKDIR /$A", args: map[string]string{"A": "2"}, want: "ENV A|1\nENV A|2\nWORKDIR /2\nENV A|1\nUSER user"},
		{name: "ARG without a value after ENV", text: "FROM x\nENV A=1\nARG A\nWORKDIR /$A", want: "ENV A|1\nWORKDIR /1\nUSER user"},
		{name: "ENV after ARG after ENV", text: "FROM x\nENV A=1\nARG A=2\nENV A=3\nWORKDIR /$A", want: "ENV A|1\nENV A|2\nENV A|3\nWORKDIR /3\nUSER user"},
		{name: "sources begin at the directory to copy from", text: "FROM x\nCOPY /a /b/../c /d/", want: "COPY ./a|/d/||\nCOPY ./b/../c|/d/||" + defaults},
		{name: "several sources", text: "FROM x\nCOPY a b .\nCOPY a b c/.\nADD --unpack a b /d/", want: "COPY a|.||\nCOPY b|.||\nCOPY a|c/.||\nCOPY b|c/.||\nCOPY a|/d/||\nCOPY b|/d/||" + defaults},
		{name: "arguments with two values", text: "ARG A=1 B=2 C=3\nFROM x:$C\nARG A=4 B C=5\nRUN y", args: map[string]string{"C": "6"}, image: "x:6", want: "ENV A|4|B|2|C|6\nRUN y" + defaults},
		{name: "empty commands", text: "FROM x\nENTRYPOINT []\nCMD []", want: defaults[1:]},
		{name: "an empty start", text: "FROM x\nENTRYPOINT [\"run\"]\nCMD []", want: defaults[1:], start: "run"},
		{name: "ARG twice after ENV", text: "FROM x\nENV A=1\nARG A=2\nARG A=3\nWORKDIR /$A", want: "ENV A|1\nENV A|2\nENV A|3\nWORKDIR /3\nENV A|1\nUSER user"},
		{name: "platform argument with a default", text: "FROM x\nARG TARGETARCH=a", want: "ENV TARGETARCH|a" + defaults},
		{name: "entry point and a command without words", text: "FROM x\nENTRYPOINT [\"run\"]\nCMD", want: defaults[1:], start: "run"},
		{name: "sandboxed", text: "FROM x\nRUN --security=sandbox y", want: "RUN y" + defaults},
		{name: "empty lines in an instruction", text: "FROM x\nRUN y \\\n\n z", want: "RUN y  z" + defaults, warnings: []string{"Dockerfile: line 4: Empty continuation line found in: RUN y  z"}},
		{name: "script", text: "FROM x\nRUN <<EOF\none\ntwo $A\nEOF", want: "RUN one\ntwo $A\n" + defaults},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := FromDockerfile(strings.NewReader(test.text), &DockerfileParams{Args: test.args})
			must.Do(t, d.err)
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

// mistakes are Dockerfiles that Docker refuses, too, with a part of the error. README.md lists
// those that only this package refuses.
var mistakes = map[string]string{
	"":                                     "no instructions",
	"RUN x":                                "no FROM",
	"RUN x\nFROM y":                        "line 1: RUN before FROM",
	"FROM a b":                             "FROM wants an image",
	"FROM a b c":                           "line 1: FROM wants an image",
	"FROM --what=1 x":                      "line 1: FROM has no flag --what",
	"FROM x:$TAG":                          `the image "x:$TAG" is not known`,
	"ARG T\nFROM $T":                       "is not known",
	"FROM x\nCOPY a":                       "line 2",
	"FROM x\nCOPY --chowns=a a b":          "COPY has no flag --chowns",
	"FROM x\nCOPY --chown a b":             "has no value",
	"FROM x\nCOPY --chown=a --chown=b a b": "is there twice",
	"FROM x\nWORKDIR a b":                  "",
	"FROM x\nUSER":                         "line 2",
	"FROM x\nENV a":                        "Dockerfile, line 2: ENV must have two arguments",
	"FROM x\nRUN <<EOF\nopen":              "unterminated heredoc",
	"FROM x\nRUN --what=1 y":               "RUN has no flag --what",
	"FROM x\nRUNN x":                       "line 2: unknown instruction RUNN",
	"FROM x\nCOPY a b c":                   "line 2: COPY of several sources wants a target that ends in /",
	"FROM x\nADD --from=y a b":             "line 2: --from of ADD is not supported: use COPY",
	"FROM x\nENV  \n":                      "line 2: ENV without a name",
	"FROM x\nARG  \n":                      "line 2: ARG without a name",
	"FROM x\nARG A=\nENV $A=x":             "line 3: ENV with an empty name",
	"FROM x\nARG A=\nARG $A=x":             "line 3: ARG with an empty name",
	"FROM x\nCOPY [\"<<A\", \"/b\"]":       "line 2: the here-document A has no text",
	"FROM x\nENV A=" + strings.Repeat("x", maxValue/4) + "\nENV A=$A$A$A$A$A": "line 3: the value of a variable is longer than 128 KiB",
	strings.Repeat("#", maxDockerfile+1):                                      "longer than",
}

func TestDockerfileRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range mistakes {
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

// TestDockerfileTells checks that an error names the line of a bad word, and says how an instruction can be mended.
func TestDockerfileTells(t *testing.T) {
	t.Parallel()
	// A word with an open brace is wrong in every place for a word.
	for _, text := range []string{
		"FROM ${A", "FROM --platform=${A x", "FROM x\nWORKDIR ${A", "FROM x\nUSER ${A", "FROM x\nENV ${A=b", "FROM x\nENV A=${A", "FROM x\nARG ${A", "FROM x\nARG B=${A",
		"FROM x\nCOPY --chown=${A a b", "FROM x\nCOPY --chmod=${A a b", "FROM x\nCOPY ${A b", "FROM x\nCOPY a ${A", "FROM x\nADD ${A b",
	} {
		want := fmt.Sprintf("Dockerfile: line %d: failed to process \"${A\"", 1+strings.Count(text, "\n"))
		if d := FromDockerfile(strings.NewReader(text), nil); d.err == nil || !strings.HasPrefix(d.err.Error(), want) {
			t.Errorf("%q: got error %v, want one that begins with %q", text, d.err, want)
		}
	}
	if d := FromDockerfile(strings.NewReader("FROM ${A\nRUNN x\nRUNN y"), nil); d.err == nil || strings.Contains(d.err.Error(), "line 2") {
		t.Errorf("instructions without a stage: got error %v, want that of line 1 alone", d.err)
	}
	// The advice for an instruction follows its name.
	for text, want := range map[string]string{
		"SHELL [\"x\"]": "name another program in RUN", "ONBUILD RUN x": "write its instruction into the Dockerfile that begins", "STOPSIGNAL 9": "leave it out",
		"HEALTHCHECK NONE": "say by Definition.Ready", "RUN --device=a,type=cache y": "leave it out",
	} {
		d := FromDockerfile(strings.NewReader("FROM x\n"+text), nil)
		if prefix := strings.Fields(text)[0]; d.err == nil || !strings.Contains(d.err.Error(), prefix) || !strings.Contains(d.err.Error(), "is not supported: ") || !strings.Contains(d.err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", text, d.err, want)
		}
	}
	for text, err := range map[string]error{
		"": errors.New("line 1"), ", line 7": &parser.LocationError{Locations: [][]parser.Range{{{Start: parser.Position{Line: 7}}}}},
	} {
		if got := lineOf(err); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	for _, none := range [][][]parser.Range{nil, {}, {{}}} {
		if got := lineOf(&parser.LocationError{Locations: none}); got != "" {
			t.Errorf("an error without a line: got %q", got)
		}
	}
}

// TestDockerfileLimits checks the longest Dockerfile and the longest value of a variable.
func TestDockerfileLimits(t *testing.T) {
	t.Parallel()
	text := "FROM x\n" + strings.Repeat("#\n", maxDockerfile/2)
	for end, fits := range map[int]bool{maxDockerfile: true, maxDockerfile + 1: false} {
		if d := FromDockerfile(strings.NewReader(text[:end]), nil); (d.err == nil) != fits {
			t.Errorf("a file of %d bytes: got error %v, want none: %v", end, d.err, fits)
		}
	}
	c := conversion{words: shell.NewLex('\\'), escape: '\\', dockerStage: &dockerStage{}}
	for n, fits := range map[int]bool{maxValue: true, maxValue + 1: false} {
		if value, err := c.value(strings.Repeat("x", n)); (err == nil) != fits || fits && len(value) != n {
			t.Errorf("a value of %d bytes: got %d bytes and error %v, want none: %v", n, len(value), err, fits)
		}
	}
	long := "FROM x\nARG A=" + strings.Repeat("x", maxValue/3+1) + "\nUSER $A$A$A$B"
	if d := FromDockerfile(strings.NewReader(long), nil); d.err == nil || !strings.Contains(d.err.Error(), "line 3: the value of a variable is longer") {
		t.Errorf("a long user: got error %v", d.err)
	}
}

// TestDockerfileWords checks that words of ENV have Docker's meaning, by its own reader of words:
// variables in single quotes and behind a backslash are text, and those that the file does not
// set are left to the service.
func TestDockerfileWords(t *testing.T) {
	t.Parallel()
	known := variables{"VER": "1.2.3", "DIR": "/srv", "EMPTY": "", "PRICE": "$5", "LIST": "a,b,a"}
	for _, word := range []string{
		`'single $VER'`, `"\$VER"`, `\$VER`, `${VER%.*}`, `${VER%%.*}`, `${VER#*.}`, `${VER##*.}`, `${LIST/a/x}`, `${LIST//a/x}`,
		`$VER`, `${VER}x`, `"$VER"x`, `$VER'x'`, `a"b $DIR"'c $DIR'$DIR`, `"it's $VER"`, `'"$VER"'`, `"\"$VER\""`, `\\$VER`, `\'$VER\'`,
		`${EMPTY:-"a $VER"}`, `${VER:+'x $VER'}`, `"${EMPTY:-'$VER'}"`, `${EMPTY:-${DIR}/b}`, `"${VER:+\$}"`, `$PRICE`, `'$PRICE'`, `$`, `a$`, `$ $`, `"$"`, `a\b`, `"a\b"`, `a\`, `a{b}`, `"x{$VER}"'$VER'`, `"a}$VER"`, `x=$VER`, `ü$VER'ü$'`,
	} {
		lex := shell.NewLex('\\')
		want, _, err := lex.ProcessWord(word, plainVariables(known))
		if err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		marked := variables{}
		for name, value := range known {
			marked[name] = literal(value)
		}
		c := conversion{words: lex, escape: '\\', dockerStage: &dockerStage{values: marked}}
		lex.SkipUnsetEnv = true
		if got, err := c.resolved(word); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q as Docker", word, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`ENV A='$X' B="\$X" C=\$X D=$X`:                 `A|\$X|B|\$X|C|\$X|D|$X`,
		"ENV V=1.2\nENV A=${V%.*} B=${X%.*} C=${X:-$V}": `V|1.2 A|1|B|${X%.*}|C|${X:-1.2}`,
		"ENV PATH=/x:$PATH\nENV PATH=/y:$PATH":          `PATH|/x:$PATH PATH|/y:$PATH`,
		`ENV A="$X"b C="${X}"b`:                         `A|${X}b|C|${X}b`,
		"ENV A='$X'\nENV B=$A":                          `A|\$X B|\$X`,
		"ARG G\nENV A=$G":                               `G|\$5 A|\$5`,
		"# escape=`\nFROM x\nENV A=`$X B='$X'":          `A|\$X|B|\$X`,
		"ENV old '$X' \\$X $X":                          `old|\$X \$X $X`,
		"ARG D='$X'\nENV A=${D}":                        `D|\$X A|\$X`,
	} {
		if !strings.HasPrefix(text, "#") {
			text = "FROM x\n" + text
		}
		d := FromDockerfile(strings.NewReader(text), &DockerfileParams{Args: map[string]string{"G": "$5"}})
		var got []string
		for _, s := range d.steps {
			if s.Type == "ENV" {
				got = append(got, strings.Join(s.Args, "|"))
			}
		}
		if d.err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, d.err, want)
		}
	}
}

// plainVariables are all known, whatever is in them.
type plainVariables map[string]string

func (v plainVariables) Get(name string) (string, bool) { value, ok := v[name]; return value, ok }
func (v plainVariables) Keys() []string                 { return nil }

// A value that doubles with each line ends in an error, not in all memory.
func TestDockerfileValueGrows(t *testing.T) {
	t.Parallel()
	text := "FROM x\nENV A=0123456789\n" + strings.Repeat("ENV A=$A$A\n", 100)
	if d := FromDockerfile(strings.NewReader(text), nil); d.err == nil || !strings.Contains(d.err.Error(), "longer than 128 KiB") {
		t.Errorf("got %v, want an error", d.err)
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
