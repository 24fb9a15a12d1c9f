package cmdutil

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestConfirm checks which answers mean yes, and the ends of a question.
func TestConfirm(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	var out bytes.Buffer
	for answer, want := range map[string]error{"y\n": nil, " YES \n": nil, "yes": nil, "\n": errDeclined, "no\n": errDeclined, "": errDeclined, "yeah\n": errDeclined} {
		out.Reset()
		if err := Confirm(t.Context(), NewIOStreams(strings.NewReader(answer), nil, &out), "Really?"); !errors.Is(err, want) || out.String() != "Really? [y/N] " {
			t.Errorf("%q: got error %v, want %v, after %q", answer, err, want, &out)
		}
	}
	reader, writer := io.Pipe()
	defer writer.Close()
	out.Reset()
	if err := Confirm(stopped, NewIOStreams(reader, nil, &out), "Really?"); !errors.Is(err, gone) || out.String() != "Really? [y/N] \n" {
		t.Errorf("got error %v after %q, want the cause of the end", err, &out)
	}
	if _, err := Await(stopped, func() (string, error) { _, err := reader.Read(make([]byte, 1)); return "", err }); !errors.Is(err, gone) {
		t.Errorf("got error %v, want the cause of the end", err)
	}
	if text, err := Await(t.Context(), func() (string, error) { return "a", gone }); text != "a" || !errors.Is(err, gone) {
		t.Errorf("got %q and error %v", text, err)
	}
}

// TestErrorsOfCommands checks which errors are kept, marked and joined.
func TestErrorsOfCommands(t *testing.T) {
	t.Parallel()
	base, later := errors.New("base"), errors.New("later")
	own := &OwnError{Err: base, Running: true}
	for _, tt := range []struct {
		err  error
		mark string // of OwnFailure
		kept string // of KeepStatus with a later error
	}{
		{nil, "", "later"}, {base, "own base", "base\nlater"}, {RemoteStatus(3), "remote status 3", "remote status 3"}, {own, "own base running", "base\nlater"},
	} {
		got := ""
		if err := OwnFailure(tt.err); err != nil {
			got = err.Error()
			if e, ok := errors.AsType[*OwnError](err); ok {
				got = "own " + got
				if e.Running {
					got += " running"
				}
				must.Is(t, err, base)
			}
		}
		if got != tt.mark {
			t.Errorf("%v is marked as %q, want %q", tt.err, got, tt.mark)
		}
		if kept := KeepStatus(tt.err, later); kept.Error() != tt.kept {
			t.Errorf("%v with a later error is %q, want %q", tt.err, kept, tt.kept)
		}
		if kept := KeepStatus(tt.err, nil); !errors.Is(kept, tt.err) || kept != nil && tt.err == nil {
			t.Errorf("%v without a later error is %v", tt.err, kept)
		}
		c := &closer{err: later}
		err := tt.err
		if Closing(c, &err); !c.closed || err.Error() != tt.kept {
			t.Errorf("%v: closed %v, got error %v, want %s", tt.err, c.closed, err, tt.kept)
		}
	}
	c := &closer{err: later}
	if err := WithClose(base, c); !errors.Is(err, base) || !errors.Is(err, later) || !c.closed {
		t.Errorf("got error %v, closed %v", err, c.closed)
	}
	cmd := &cobra.Command{Use: "run"}
	usage := Usagef(cmd, "bad %d: %w", 1, base)
	if e, ok := errors.AsType[*UsageError](usage); !ok || e.Command != "run" || usage.Error() != "bad 1: base" || !errors.Is(usage, base) {
		t.Errorf("got the mistake %+v", usage)
	}
	for args, want := range map[int]string{0: "", 1: "want no arguments"} {
		if err := NoArguments(cmd, make([]string, args)); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%d arguments: got error %v, want %q", args, err, want)
		}
	}
}

type closer struct {
	err    error
	closed bool
}

func (c *closer) Close() error { c.closed = true; return c.err }

// TestOutcomes checks what a command over several names prints, and the error it ends with.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	bad := errors.New("sandbox: bad")
	for name, tt := range map[string]struct {
		args, names string // a name that begins with x fails
		out, errs   string
		want        string
	}{
		"one":             {"", "a", "a\n", "", ""},
		"one that fails":  {"", "x", "", "", "sandbox: bad"},
		"one twice":       {"", "x x", "", "", "sandbox: bad"},
		"several":         {"", "a x\x1b b a y x2", "a\nb\ny\n", "x: bad\nx2: bad\n", "2 of 5 failed"},
		"all well":        {"", "a b a", "a\nb\n", "", ""},
		"json":            {"-o|json", "a x", "[\n  {\n    \"name\": \"a\"\n  },\n  {\n    \"name\": \"x\",\n    \"error\": {\n      \"code\": \"c\",\n      \"message\": \"sandbox: bad\"\n    }\n  }\n]\n", "", "1 of 2 failed"},
		"names":           {"-o|name", "a x", "a\n", "x: bad\n", "1 of 2 failed"},
		"one in lines":    {"-o|jsonl", "x", `{"name":"x","error":{"code":"c","message":"sandbox: bad"}}` + "\n", "", "sandbox: bad"},
		"several, a line": {"-o|jsonl", "a b", `{"name":"a"}` + "\n" + `{"name":"b"}` + "\n", "", ""},
	} {
		f, out, err := withFlags(t, "kill", tt.args)
		must.Do(t, err)
		var errs bytes.Buffer
		f.IO.Err = &errs
		err = f.EachNamed(strings.Fields(tt.names), func(name string) error {
			if strings.HasPrefix(name, "x") {
				return bad
			}
			return nil
		})
		if diff := cmp.Diff([]string{tt.out, tt.errs}, []string{out.String(), errs.String()}); diff != "" || (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: got error %v, want %q, output and messages (-want +got):\n%s", name, err, tt.want, diff)
		}
		if r, ok := f.IO.Out.(*results); ok {
			r.Writer = full{}
		} else {
			f.IO.Out = full{}
		}
		must.Is(t, f.Report([]Outcome{{Name: "a"}, {Name: "b"}}), errFull)
	}
	if got := (&Factory{}).ErrorView(nil); got != nil {
		t.Errorf("no error is %+v", got)
	}
}

// TestGroups checks the mistakes below a command that only has others.
func TestGroups(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"sub lis": "unknown command \"lis\" for \"top sub\"\n\nDid you mean this?\n\tlist\n", "sub nothing": "unknown command \"nothing\" for \"top sub\"", "sub": "", "sub list": "",
	} {
		ran := false
		top := &cobra.Command{Use: "top", SilenceErrors: true, SilenceUsage: true}
		top.AddCommand(NewGroup("sub", "short text", &cobra.Command{Use: "list", Run: func(*cobra.Command, []string) { ran = true }}))
		var out bytes.Buffer
		top.SetOut(&out)
		top.SetArgs(strings.Fields(args))
		if err := top.Execute(); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: got error %v, want %q", args, err, want)
		}
		if ran != (args == "sub list") || (args == "sub") != strings.Contains(out.String(), "short text") {
			t.Errorf("%s: ran %v, printed %q", args, ran, &out)
		}
	}
}

// TestIDFiles checks the files that receive the ID of a sandbox, and the rest after a failure.
func TestIDFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"old": "i0\n", "target": "i0\n", "step": "a=b\n"} {
		must.Do(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	must.Do(t, os.Mkdir(at("dir"), 0o700))
	must.Do(t, os.Symlink("target", at("link")))
	must.Do(t, os.Symlink(at("target"), at("other")))
	var output stepOutput
	t.Setenv("GITHUB_OUTPUT", "")
	if err := output.Set("id"); err == nil || !strings.Contains(err.Error(), "GITHUB_OUTPUT is not set") {
		t.Errorf("outside of a step: got error %v", err)
	}
	t.Setenv("GITHUB_OUTPUT", at("step"))
	if err := output.Set("1d"); err == nil {
		t.Error("an output that begins with a digit: got no error")
	}
	must.Do(t, output.Set("id"))
	for _, tt := range []struct {
		flags idFlags
		file  string // what has the ID then
		err   string
	}{
		{idFlags{}, "", ""}, {idFlags{file: at("old")}, "old", ""}, {idFlags{file: at("new")}, "new", ""}, {idFlags{file: at("link")}, "target", ""}, {idFlags{output: output}, "", ""},
		// The link leads nowhere now: the last of these removed the file, and wrote none.
		{idFlags{file: at("link")}, "target", ""}, {idFlags{file: at("other")}, "target", ""},
		{idFlags{file: at("dir")}, "", "--name-file " + at("dir") + ": this is not a regular file"},
		{idFlags{file: at("no/new")}, "", "--name-file: create " + at("no/new") + ": no such file or directory"},
	} {
		for _, writes := range []bool{true, false} {
			files, err := tt.flags.open()
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Fatalf("%+v: got error %v, want %q", tt.flags, err, tt.err)
			}
			if err != nil {
				continue
			}
			if writes {
				must.Do(t, files.write("i1"))
			}
			files.close()
			text, err := os.ReadFile(at(tt.file))
			if tt.file == "" {
				continue
			}
			if (err == nil) != writes || writes && string(text) != "i1\n" {
				t.Errorf("%+v: got %q and error %v, written: %v", tt.flags, text, err, writes)
			}
		}
	}
	if text, err := os.ReadFile(at("step")); err != nil || string(text) != "a=b\nid=i1\n" {
		t.Errorf("the outputs of the step are %q (%v)", text, err)
	}
	files, err := (&idFlags{file: at("new"), output: output}).open()
	must.Do(t, err)
	must.Do(t, os.Mkdir(at("new"), 0o700))
	must.Do(t, os.WriteFile(at("new/x"), nil, 0o600))
	if err := files.write("i2"); err == nil || !strings.HasPrefix(err.Error(), "writing its ID to --name-file "+at("new")+": ") || strings.Contains(err.Error(), ".e2bctl-") {
		t.Errorf("got error %v without the name of the temporary file", err)
	}
	files.close()
	if _, err := files.output.WriteString("x"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file of outputs is open after close: %v", err)
	}
	t.Setenv("GITHUB_OUTPUT", at("none"))
	if _, err := (&idFlags{file: at("more"), output: output}).open(); err == nil || !strings.HasPrefix(err.Error(), "--github-output, with the file that GITHUB_OUTPUT names: ") {
		t.Errorf("got error %v", err)
	}
	left, err := os.ReadDir(dir)
	must.Do(t, err)
	if slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".e2bctl-") || e.Name() == "more" }) {
		t.Errorf("temporary files are left: %v", left)
	}
}

// TestReading checks a reader of the input that the end of a context ends, and that a file stays a file.
func TestReading(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	text, err := io.ReadAll(NewIOStreams(iotest.OneByteReader(strings.NewReader("abc")), nil, nil).Reading(t.Context()))
	if err != nil || string(text) != "abc" {
		t.Errorf("got %q and error %v", text, err)
	}
	_, err = io.ReadAll(NewIOStreams(iotest.ErrReader(failed), nil, nil).Reading(t.Context()))
	must.Is(t, err, failed)
	in, writer := io.Pipe()
	defer writer.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := NewIOStreams(in, nil, nil).Reading(ctx)
	cancel(failed)
	_, err = r.Read(make([]byte, 1))
	must.Is(t, err, failed)
	name := filepath.Join(t.TempDir(), "in")
	must.Do(t, os.WriteFile(name, []byte("abc"), 0o600))
	file, err := os.Open(name)
	must.Do(t, err)
	defer file.Close()
	whole := NewIOStreams(file, nil, nil).Reading(t.Context())
	if _, ok := whole.(keptOpen); !ok {
		t.Errorf("a file is read as %T", whole)
	}
	must.Do(t, whole.Close())
	if _, err := file.Read(make([]byte, 1)); err != nil {
		t.Errorf("the file is closed: %v", err)
	}
}

// TestTimesOfCommands checks the limits of a command, and the time that it has after a signal.
func TestTimesOfCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for limit, want := range map[Duration]bool{0: false, Duration(time.Minute): true} {
			ctx, cancel := WithLimit(t.Context(), "deadline", limit)
			if _, got := ctx.Deadline(); got != want {
				t.Errorf("%v: has a limit: %v", limit, got)
			}
			cancel()
		}
		if s := StoppingOf(t.Context()); s.second != nil || s.Allowed() != 0 {
			t.Errorf("without signals: got %+v", s)
		}
		for _, signalled := range []bool{false, true} {
			second := make(chan struct{})
			ctx, s := WithStopping(t.Context(), second)
			if StoppingOf(ctx) != s {
				t.Error("the context has another one")
			}
			s.Allow(time.Minute)
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			begun := time.Now()
			last, done := s.Context(ctx)
			want, took := context.DeadlineExceeded, time.Minute
			if synctest.Wait(); last.Err() != nil {
				t.Errorf("it ends with the first: %v", last.Err())
			}
			if signalled {
				close(second)
				want, took = context.Canceled, 0
			}
			<-last.Done()
			if got := time.Since(begun); got != took || !errors.Is(last.Err(), want) || StoppingOf(last) != s {
				t.Errorf("signalled %v: ended after %v with %v, want %v and %v", signalled, got, last.Err(), took, want)
			}
			done()
		}
	})
}

// TestSandboxPath checks which texts name a path of a sandbox.
func TestSandboxPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{"i1:/a": {"i1", "/a"}, "i1:": {"i1", "."}, "i1:a:b": {"i1", "a:b"}, "c:/a": {}, "ab:c": {"ab", "c"}, "./i1:a": {}, `a\b:c`: {}, "i1": {}, ":/a": {}} {
		if id, path, ok := SandboxPath(text); ok != (want[0] != "") || ok && (id != want[0] || path != want[1]) {
			t.Errorf("%s: got %s, %s and %v", text, id, path, ok)
		}
	}
}
