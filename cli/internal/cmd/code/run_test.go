package code

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The traceback of interrupted code is on stderr, and shows where it hung. Nothing is added if
// there is none, and JSON stays alone.
func TestInterruptedCodeShowsWhereItWas(t *testing.T) {
	t.Parallel()
	interrupted := &sandbox.InterruptedError{Cause: context.DeadlineExceeded}
	said := &sandbox.Execution{Error: &sandbox.ExecutionError{Name: "KeyboardInterrupt", Traceback: "Cell In[1], line 3\nKeyboardInterrupt\n"}}
	for _, test := range []struct {
		name      string
		json      bool
		execution *sandbox.Execution
		want      string
	}{
		{name: "traceback", execution: said, want: "Cell In[1], line 3\nKeyboardInterrupt\n"},
		{name: "JSON", json: true, execution: said},
		{name: "no traceback", execution: &sandbox.Execution{}},
		{name: "not started"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			o := runOptions{JSON: test.json}
			err := o.givenUp(&codeWriter{w: &got}, test.execution, interrupted)
			if own, ok := errors.AsType[*cmdutil.OwnError](err); !ok || !own.Running || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want a *cmdutil.OwnError of running code with its cause", err)
			}
			if got.String() != test.want {
				t.Errorf("stderr has %q, want %q", got.String(), test.want)
			}
		})
	}
}

// TestReplNeedsATerminal checks that a session needs a terminal for its input and for its output.
func TestReplNeedsATerminal(t *testing.T) {
	t.Parallel()
	for _, in := range []bool{true, false} {
		ios := cmdutil.NewIOStreams(strings.NewReader(""), io.Discard, io.Discard)
		ios.InIsTerminal, ios.OutIsTerminal = in, !in
		err := cmdtest.Execute(t, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdCode(f)} }, "code", "repl", "i1")
		if err == nil || !strings.HasPrefix(err.Error(), "code repl needs a terminal as standard input and output") {
			t.Errorf("only the input is a terminal: %t: got error %v", in, err)
		}
	}
}

// TestUnshownEnds checks that the report of interrupted code that cannot be written is the error.
func TestUnshownEnds(t *testing.T) {
	t.Parallel()
	o := runOptions{}
	said := &sandbox.Execution{Error: &sandbox.ExecutionError{Traceback: "line 3"}}
	must.Is(t, o.givenUp(&codeWriter{w: &fullAfter{}}, said, context.Canceled), syscall.ENOSPC)
}

// TestCodeThatNeverRan checks the errors that mean that a kernel did not run the code, and their messages.
func TestCodeThatNeverRan(t *testing.T) {
	t.Parallel()
	o := kernelOptions{Language: "r"}
	for _, tt := range []struct {
		err  error
		want string // "": the error itself
	}{
		{nil, ""}, {io.EOF, ""}, {&sandbox.ExecutionError{Name: "ValueError", Traceback: "x"}, ""},
		{fmt.Errorf("x: %w", sandbox.ErrUnknownLanguage), sandbox.ErrUnknownLanguage.Error() + ": r"},
		{&sandbox.ExecutionError{Name: "KernelStartError", Value: " no R\n", Traceback: "\nE: no R\n"}, "the kernel cannot start: no R"},
		{&sandbox.ExecutionError{Name: "KernelStartError", Value: "no R", Traceback: "E\nno R"}, ""},
	} {
		got := o.notStarted(tt.err)
		if tt.want == "" && !errors.Is(got, tt.err) || tt.want != "" && got.Error() != tt.want {
			t.Errorf("%v: got %v, want %q", tt.err, got, tt.want)
		}
	}
}

// TestScripts checks that a Python file ends with its own status, and is run as python3 runs it: prepared before, ended after,
// and without the display of its last value.
func TestScripts(t *testing.T) {
	isolated := t.TempDir()
	t.Setenv("E2B_API_KEY", "e2b_00")
	t.Chdir(isolated)
	for name, tt := range map[string]struct {
		code, ends string
		args       []string
		out, errs  string
		status     error // nil: none
		text       string
		passed     string // to the end of the program
	}{
		"status 0":      {code: "6 * 7", ends: "0", out: "the end\n", passed: "(True, False)"},
		"status 3":      {code: "half", ends: "3", out: "half a linethe end\n", status: cmdutil.RemoteStatus(3), passed: "(True, False)"},
		"no status":     {code: "6 * 7", ends: "x", out: "the end\n", text: `the program's status is "x", not a number`, passed: "(True, False)"},
		"a broken end":  {code: "6 * 7", ends: "raise", out: "the end\n", errs: "warned\n", text: "ending the program: ", passed: "(True, False)"},
		"a lost end":    {code: "6 * 7", ends: "die", out: "the end\n", text: "waiting for the program's threads and exit handlers: ", passed: "(True, False)"},
		"an exception":  {code: "raise", ends: "0", out: "the end\n", errs: "warned\nline 3\nValueError: no\n", status: cmdutil.RemoteStatus(1), passed: "(True, False)"},
		"both":          {code: "raise", ends: "raise", out: "the end\n", errs: "warned\nline 3\nValueError: no\nwarned\n", status: cmdutil.RemoteStatus(1), passed: "(True, False)"},
		"an exit":       {code: "exit", ends: "4", out: "the end\n", status: cmdutil.RemoteStatus(4), passed: "(True, True)"},
		"in a sandbox":  {code: "6 * 7", ends: "0", args: []string{"-s", "i1"}, out: "the end\n", passed: "(False, False)"},
		"as JSON":       {code: "half", ends: "0", args: []string{"-o", "json"}, out: `"stdout": "half a linethe end\n"`, passed: "(True, False)"},
		"JSON, status":  {code: "raise", ends: "0", args: []string{"-o", "json"}, out: `"name": "ValueError"`, status: cmdutil.RemoteStatus(1), passed: "(True, False)"},
		"JSON, a fault": {code: "half", ends: "x", args: []string{"-o", "json"}, text: "the program's status is", passed: "(True, False)"},
		"a display":     {code: "display", ends: "0", out: "a display\nthe end\n", passed: "(True, False)"},
		"a figure":      {code: "figure", ends: "0", out: "the end\n", passed: "(True, False)"},
		"a picture":     {code: "picture", ends: "0", args: []string{"--save-images", "plots"}, out: "the end\n", errs: "saved " + filepath.Join("plots", "image-1.png") + "\n", passed: "(True, False)"},
	} {
		s := &kernels{t: t, ends: tt.ends}
		server := httptest.NewServer(s)
		t.Setenv("E2B_SANDBOX_URL", server.URL)
		must.Do(t, os.WriteFile("a.py", []byte(tt.code), 0o600))
		var out, errs bytes.Buffer
		words := append([]string{"--api-url", server.URL, "--no-env-file", "code", "run", "a.py"}, append(tt.args, "--", "--top", "1")...)
		err := cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &out, &errs), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdCode(f)} }, words...)
		status, _ := errors.AsType[cmdutil.RemoteStatus](err)
		want, _ := errors.AsType[cmdutil.RemoteStatus](tt.status)
		if status != want || (err == nil) != (tt.status == nil && tt.text == "") || tt.text != "" && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got error %v, want status %d or %q", name, err, want, tt.text)
		}
		if got := out.String(); got != tt.out && (len(tt.args) == 0 || !strings.Contains(got, tt.out)) {
			t.Errorf("%s: got the output %q, want %q", name, got, tt.out)
		}
		if got := errs.String(); len(tt.args) == 0 && got != tt.errs || !strings.Contains(got, tt.errs) {
			t.Errorf("%s: got the messages %q, want %q", name, got, tt.errs)
		}
		if len(s.ran) != 3 || !strings.Contains(s.ran[0], `_e2bctl_begin(["a.py","--top","1"])`) || s.ran[1] != tt.code || !strings.HasSuffix(s.ran[2], tt.passed) {
			t.Errorf("%s: the kernel ran %.300q, want the file between its beginning and its end with %s", name, s.ran, tt.passed)
		}
		server.CloseClientConnections()
		server.Close()
	}
}

// TestCodeToRun checks from where code is read, how long it may be, and that nothing else is part of it.
func TestCodeToRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, size int64) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		if size > 0 {
			must.Do(t, os.Truncate(path, size))
		}
		return path
	}
	for name, tt := range map[string]struct {
		o    runOptions
		want string // the code, "long", or a part of the error
	}{
		"on the line":  {runOptions{Code: "x", HasCode: true, File: "none"}, "x"},
		"nothing":      {runOptions{HasCode: true}, ""},
		"a file":       {runOptions{File: file("a", "y\n", 0)}, "y\n"},
		"with a mark":  {runOptions{File: file("b", "\ufeff\ufeffy", 0)}, "\ufeffy"},
		"no file":      {runOptions{File: filepath.Join(dir, "none")}, "no such file"},
		"a directory":  {runOptions{File: dir}, "reading the code: "},
		"the longest":  {runOptions{File: file("c", "", maxCode)}, "long"},
		"too long":     {runOptions{File: file("d", "", maxCode+1)}, "the code is longer than 16 MiB"},
		"input":        {runOptions{File: "-", kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(strings.NewReader("z"), nil, nil)}}, "z"},
		"broken input": {runOptions{File: "-", kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(iotest.ErrReader(errors.New("no disk")), nil, nil)}}, "reading the code: no disk"},
	} {
		got, err := tt.o.read(t.Context())
		if len(got) == maxCode {
			got = "long"
		}
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: got %.100q and error %v, want %q", name, got, err, tt.want)
		}
	}
}

// TestAnswersOfInput checks the lines of standard input that answer the questions of code.
func TestAnswersOfInput(t *testing.T) {
	t.Parallel()
	for _, o := range []runOptions{
		{File: "-", kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(strings.NewReader("a"), nil, nil)}},
		{kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(nil, nil, nil)}},
	} {
		if o.answer() != nil {
			t.Errorf("%q: there are answers, want none", o.File)
		}
	}
	var errs bytes.Buffer
	o := runOptions{File: "a.py", kernelOptions: kernelOptions{IO: cmdutil.NewIOStreams(strings.NewReader("a\r\n\nword\nlast"), nil, &errs)}}
	answer := o.answer()
	for i, want := range []string{"a", "", "word", "last", "EOF"} {
		got, err := answer(t.Context(), fmt.Sprintf("%d?\x1b[2J ", i), want == "word")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
	if got := errs.String(); !strings.HasPrefix(got, "0?") || strings.Contains(got, "\x1b") {
		t.Errorf("the questions are shown as %q", got)
	}
}

// TestSavedImages checks the files of the pictures in results, and that one that cannot be written does not keep the others
// from being written.
func TestSavedImages(t *testing.T) {
	t.Parallel()
	quoted := func(text string) json.RawMessage { return json.RawMessage(strconv.Quote(text)) }
	results := []sandbox.Result{
		{Data: map[string]json.RawMessage{"text/plain": quoted("x")}},
		{Data: map[string]json.RawMessage{"image/png": quoted("cG5n"), "image/jpeg": quoted("anBn"), "application/pdf": quoted("cGRm"), "image/svg+xml": quoted("<svg/>")}},
	}
	dir := filepath.Join(t.TempDir(), "plots")
	var told bytes.Buffer
	must.Do(t, imageSaver{dir: dir, tell: &told, before: 3}.save(results))
	var want strings.Builder
	for _, file := range [][2]string{{"image-5.png", "png"}, {"image-5.jpg", "jpg"}, {"image-5.pdf", "pdf"}, {"image-5.svg", "<svg/>"}} {
		path := filepath.Join(dir, file[0])
		fmt.Fprintf(&want, "saved %s\n", path)
		if got, err := os.ReadFile(path); err != nil || string(got) != file[1] {
			t.Errorf("%s has %q, error %v, want %q", file[0], got, err, file[1])
		}
	}
	if diff := cmp.Diff(want.String(), told.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Do(t, imageSaver{tell: &told}.save(results)) // without a directory nothing is written
	in := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(in, "image-2.png"), 0o700))
	err := imageSaver{dir: in, tell: io.Discard}.save(results)
	if left, _ := filepath.Glob(filepath.Join(in, "image-2.*")); err == nil || !strings.HasPrefix(err.Error(), "saving an image: ") || len(left) != 4 {
		t.Errorf("got error %v and the files %q, want an error of one of the four", err, left)
	}
	if err := (imageSaver{dir: filepath.Join(dir, "image-5.png"), tell: io.Discard}).save(results); err == nil {
		t.Error("a file as the directory: got no error")
	}
}
