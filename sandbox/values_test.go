package sandbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTimesOfAnExecution checks the parts of the time of code that began, and of code that did not.
func TestTimesOfAnExecution(t *testing.T) {
	t.Parallel()
	asked := time.Unix(100, 0)
	for _, test := range []struct {
		started     time.Time
		queued, ran time.Duration
	}{{asked.Add(time.Second), time.Second, 4 * time.Second}, {time.Time{}, 5 * time.Second, 0}} {
		at := Timing{Asked: asked, Started: test.started, Finished: asked.Add(5 * time.Second)}
		if at.Queued() != test.queued || at.Ran() != test.ran {
			t.Errorf("%+v: queued for %v, ran for %v, want %v and %v", at, at.Queued(), at.Ran(), test.queued, test.ran)
		}
	}
}

// TestDroppedIsTruncated checks that each kind of dropped output counts.
func TestDroppedIsTruncated(t *testing.T) {
	t.Parallel()
	for _, e := range []Execution{{StdoutDropped: 1}, {StderrDropped: 1}, {LogsDropped: 1}, {ResultsDropped: 1}} {
		if !e.Truncated() {
			t.Errorf("%+v: is not truncated", e)
		}
	}
	if (&Execution{}).Truncated() {
		t.Error("nothing was dropped, but it is truncated")
	}
}

// TestFormatsOfResults checks that each method returns the format of its name, and no other.
func TestFormatsOfResults(t *testing.T) {
	t.Parallel()
	methods := map[string]func(Result) string{
		"text/plain": Result.Text, "text/html": Result.HTML, "text/markdown": Result.Markdown, "text/latex": Result.LaTeX,
		"application/javascript": Result.JavaScript, "image/svg+xml": Result.SVG,
		"application/json": func(r Result) string { return string(r.JSON()) },
		"image/png":        func(r Result) string { return string(r.PNG()) },
		"image/jpeg":       func(r Result) string { return string(r.JPEG()) },
		"application/pdf":  func(r Result) string { return string(r.PDF()) },
	}
	for mime := range methods {
		content := `"a text"`
		want := "a text"
		switch mime {
		case "application/json":
			content, want = `[1]`, `[1]`
		case "image/png", "image/jpeg", "application/pdf":
			content = `"` + base64.StdEncoding.EncodeToString([]byte(want)) + `"`
		}
		r := Result{Data: map[string]json.RawMessage{mime: []byte(content)}}
		for of, method := range methods {
			if got := method(r); (of == mime) != (got == want) || of != mime && got != "" {
				t.Errorf("a result of %s: the method for %s returns %q", mime, of, got)
			}
		}
	}
}

// TestMalformedMessages checks that a message of a kernel, or a line of an interpreter, with content of another
// form is an error and not an empty event.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	for kind, good := range map[string]string{
		"stream": `{"name":"stdout","text":"x"}`, "display_data": `{"data":{}}`, "update_display_data": `{}`, "execute_result": `{}`,
		"clear_output": `{}`, "execute_input": `{"execution_count":1}`, "error": `{"ename":"E"}`, kernelconn.MessageQueued: `{"position":1}`, "input_request": `{"prompt":"p"}`,
	} {
		for content, fails := range map[string]bool{good: false, `[]`: true, `{`: true} {
			events := 0
			c := newCollector(&RunCodeParams{})
			c.event = func(CodeEvent) error { events++; return nil }
			err := c.message(&jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.Header{MsgType: kind}, Content: []byte(content)})
			if (err != nil) != fails || fails && (events > 0 || !strings.Contains(err.Error(), "kernel")) {
				t.Errorf("%s %s: got error %v and %d events, want an error: %v", kind, content, err, events, fails)
			}
		}
	}
	for line, fails := range map[string]bool{
		`{"type":"stdout","text":"x"}`: false, `{"type":"stdout","text":[]}`: true, `{"type":"stderr","text":1}`: true, `{"type":"result","text":[]}`: false, `[]`: true, `{`: true,
	} {
		c := newCollector(&RunCodeParams{})
		if err := c.line([]byte(line)); (err != nil) != fails || fails && !strings.HasPrefix(err.Error(), "read the interpreter's answer: ") {
			t.Errorf("%s: got error %v, want one: %v", line, err, fails)
		}
	}
}

// TestErrorsOfTheCollector checks that an error of the caller's function, or of its writer, ends the code.
func TestErrorsOfTheCollector(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for _, line := range []string{
		`{"type":"stdout","text":"x"}`, `{"type":"queued","position":1}`, `{"type":"number_of_executions","execution_count":1}`, `{"type":"result","text":"x"}`,
		`{"type":"result","text":"x","is_main_result":true}`, `{"type":"error","name":"E","value":"v"}`, `{"type":"end_of_execution"}`,
	} {
		c := newCollector(&RunCodeParams{})
		c.event = func(CodeEvent) error { return mine }
		if err := c.line([]byte(line)); !errors.Is(err, mine) {
			t.Errorf("%s: got error %v, want %v", line, err, mine)
		}
	}
}

// TestUpdatesAreBounded checks that an update that is too large is dropped, and counted, and that a smaller one frees its bytes.
func TestUpdatesAreBounded(t *testing.T) {
	t.Parallel()
	c := newCollector(&RunCodeParams{})
	collect(t, c, display("display_data", "a", "1"), display("update_display_data", "a", "22"))
	with := (Result{Data: map[string]json.RawMessage{"text/plain": []byte(`"22"`)}}).size()
	c.size = maxResultBytes // as if the rest had come before
	collect(t, c, display("update_display_data", "a", "333"))
	if e := c.finished(); e.Results[0].Text() != "22" || e.ResultsDropped != 1 {
		t.Errorf("got %q and %d dropped, want the update before and 1", e.Results[0].Text(), e.ResultsDropped)
	}
	collect(t, c, display("update_display_data", "a", "44"))
	if e := c.finished(); e.Results[0].Text() != "44" || e.ResultsDropped != 1 || c.size != maxResultBytes {
		t.Errorf("got %q, %d dropped and %d bytes, want the update, as many as before and %d", e.Results[0].Text(), e.ResultsDropped, c.size, maxResultBytes)
	}
	collect(t, c, display("update_display_data", "a", ""))
	if want := maxResultBytes - with + (Result{Data: map[string]json.RawMessage{"text/plain": []byte(`""`)}}).size(); c.size != want {
		t.Errorf("got %d bytes, want %d", c.size, want)
	}
}

// TestTextsOfErrors checks the texts that tell people what they can do.
func TestTextsOfErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("it took too long")
	for want, err := range map[string]error{
		"it took too long before the code began: the kernel was still starting":            &InterruptedError{Cause: cause, Starting: true},
		"it took too long before the code began: other code of the context may be running": &InterruptedError{Cause: cause},
		"it took too long: the code was interrupted after it had been under way for 2ms":   &InterruptedError{Cause: cause, Ran: 2 * time.Millisecond, Ended: true},
		"it took too long: the code is being interrupted after it had been under way for":  &InterruptedError{Cause: cause, Ran: 2 * time.Millisecond},
		"nothing listens on port 7 of the sandbox":                                         &portClosedError{port: 7},
		"nothing listens on port 7 of the sandbox: for a reason":                           &portClosedError{port: 7, reason: "for a reason"},
		"i1 is gone: its end": &GoneError{ID: "i1", Reason: "its end"},
	} {
		if got := err.Error(); !strings.HasPrefix(got, want) || strings.HasSuffix(want, "sandbox") && got != want {
			t.Errorf("got %q, want it to begin with %q", got, want)
		}
		if i, ok := errors.AsType[*InterruptedError](err); ok && !errors.Is(i, cause) {
			t.Errorf("%q: does not match its cause", want)
		}
	}
	broken := fmt.Errorf("%w: %w: %w", ErrCommandLost, context.Canceled, context.DeadlineExceeded)
	if err := uncancelled(broken); errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrCommandLost) || err.Error() != broken.Error() {
		t.Errorf("got %q, want %q without the error of a context", err, broken)
	}
	if caller := fmt.Errorf("the caller's: %w", context.DeadlineExceeded); uncancelled(caller) != caller { //nolint:errorlint // the error itself
		t.Error("the deadline that the caller set is not its own error")
	}
}

// TestTranslatedErrors checks that errors of libraries become errors of package api with the call in question, and that
// errors of this package stay what they are.
func TestTranslatedErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("reset")
	for _, test := range []struct {
		what         string
		err          error
		method, path string
		status       int
	}{
		{"a refused websocket", &jupyter.DialError{StatusCode: 403, Body: []byte("no")}, http.MethodGet, "/api/kernels", 403},
		{"a broken request", &url.Error{Op: "Put", URL: "http://h/a?b", Err: cause}, "PUT", "/a", 0},
		{"a request without an address", &url.Error{Op: "Put", URL: ":", Err: cause}, "PUT", "", 0},
		{"a broken call", connect.NewError(connect.CodeUnavailable, cause), http.MethodPost, "/process.Process", 0},
	} {
		got, ok := translated(test.err).(*api.Error) //nolint:errorlint // not wrapped
		if !ok || got.Method != test.method || got.Path != test.path || got.StatusCode != test.status {
			t.Errorf("%s: got %+v, want %s %s with status %d", test.what, got, test.method, test.path, test.status)
		}
		if test.status == 0 && !errors.Is(got, cause) {
			t.Errorf("%s: got %v, want its cause", test.what, got)
		}
	}
	for _, kept := range []error{
		fmt.Errorf("%w: %w", ErrCommandLost, &url.Error{Err: cause}), fmt.Errorf("%w: %w", ErrKernelLost, &url.Error{Err: cause}), fmt.Errorf("%w: %w", ErrNeedsWebsocket, &jupyter.DialError{}),
		fmt.Errorf("%w: %w", ErrUnknownLanguage, &jupyter.DialError{}), cause,
	} {
		if got := translated(kept); got != kept { //nolint:errorlint // the error itself
			t.Errorf("got %v, want %v itself", got, kept)
		}
	}
}

// TestReasonOfABuild checks which line of a build's output is its reason.
func TestReasonOfABuild(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"": "", "\n one \n\n": "one", "one\n  Error: two\nthree\n": "Error: two", "error: one\nERROR two\nthree": "ERROR two",
		"error: command 'gcc' failed: No such file or directory: 'gcc'\nerror: two\n": "error: command 'gcc' failed: No such file or directory: 'gcc'; what a build needs can be installed first, as root, or in the template",
	} {
		if got := buildReason(output); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
	got := excluded("Looking\nIgnoring colorama: markers 'sys_platform == \"win32\"' don't match your environment\n")
	if diff := cmp.Diff([]ExcludedRequirement{{Name: "colorama", Marker: `sys_platform == "win32"`}}, got); diff != "" {
		t.Errorf("requirements that are left out (-want +got):\n%s", diff)
	}
}

// TestNoPlaceForWheels checks that each file that is in the way of a wheel is an error.
func TestNoPlaceForWheels(t *testing.T) {
	t.Parallel()
	add := func(directory string) error {
		return wheelCache{directory: directory, limit: 100}.add([]string{sumOf("wheel")}, strings.NewReader("wheel"))
	}
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	taken := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(taken, sumOf("wheel"), "in it"), 0o700))
	for what, directory := range map[string]string{"a file as the directory": file, "a directory as the wheel": taken} {
		if err := add(directory); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if n := files(t, taken); n != 1 {
		t.Errorf("%d files beside the directory are left", n-1)
	}
	var c config
	must.Do(t, WithWheelCache("d", 7).apply(&c))
	if diff := cmp.Diff(&wheelCache{directory: "d", limit: 7}, c.wheels, cmp.AllowUnexported(wheelCache{})); diff != "" {
		t.Errorf("the cache of WithWheelCache (-want +got):\n%s", diff)
	}
}

// TestTypesOfFiles checks the type of each kind of file.
func TestTypesOfFiles(t *testing.T) {
	t.Parallel()
	for kind, want := range map[filesystem.FileType]FileType{
		filesystem.FileType_FILE_TYPE_FILE: TypeFile, filesystem.FileType_FILE_TYPE_DIRECTORY: TypeDir, filesystem.FileType_FILE_TYPE_SYMLINK: TypeSymlink,
	} {
		if got := newFileInfo(&filesystem.EntryInfo{Name: "a", Type: kind}).Type; got != want {
			t.Errorf("%v: got %v, want %v", kind, got, want)
		}
	}
	all := &filesystem.EntryInfo{
		Name: "a", Path: "/d/a", Type: filesystem.FileType_FILE_TYPE_DIRECTORY, Size: 3, Permissions: "Lrwxr-x---", Mode: 0o750, Owner: "me", Group: "us",
		Metadata: map[string]string{"k": "v"}, ModifiedTime: timestamppb.New(testTime), SymlinkTarget: new("/to"),
	}
	want := &FileInfo{
		Name: "a", Path: "/d/a", Type: TypeSymlink, TargetType: TypeDir, SymlinkTarget: "/to", Size: 3, Permissions: "Lrwxr-x---", Mode: fs.ModeSymlink | 0o750,
		Owner: "me", Group: "us", Metadata: map[string]string{"k": "v"}, ModTime: testTime,
	}
	if diff := cmp.Diff(want, newFileInfo(all)); diff != "" {
		t.Errorf("all fields (-want +got):\n%s", diff)
	}
	all.Permissions = "drwxr-x---"
	if got := newFileInfo(all).Mode; got&fs.ModeSymlink == 0 {
		t.Errorf("a link to a directory: got the mode %v", got)
	}
	if got := newFileInfo(&filesystem.EntryInfo{}); !got.ModTime.IsZero() || got.Mode != 0 || got.TargetType != "" {
		t.Errorf("an entry without fields: got %+v", got)
	}
}

// TestLabelOfAGitFile checks the label of each letter of a status.
func TestLabelOfAGitFile(t *testing.T) {
	t.Parallel()
	for f, want := range map[GitFile]string{{Index: 'A', Worktree: ' '}: "added", {Index: ' ', Worktree: 'M'}: "modified", {Index: 'x', Worktree: 'x'}: "unknown"} {
		if got := f.Label(); got != want {
			t.Errorf("%c%c: got %q, want %q", f.Index, f.Worktree, got, want)
		}
	}
}

// TestLastEventOfACommand checks that the last event is the end of the command, or the error with which it was lost.
func TestLastEventOfACommand(t *testing.T) {
	t.Parallel()
	result := &CommandResult{ExitCode: 3}
	for _, test := range []struct {
		err, last error
		exit      *CommandResult
	}{{nil, nil, result}, {&ExitError{result}, nil, result}, {ErrCommandLost, ErrCommandLost, nil}} {
		events := 0
		(&Command{result: result, err: test.err}).last(func(event CommandEvent, err error) bool {
			events++
			if event.Exit != test.exit || !errors.Is(err, test.last) || test.last == nil && err != nil {
				t.Errorf("after %v: got %+v and error %v, want %v and %v", test.err, event, err, test.exit, test.last)
			}
			return true
		})
		if events != 1 {
			t.Errorf("after %v: %d events, want one", test.err, events)
		}
	}
}
