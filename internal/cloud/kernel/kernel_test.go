//go:build linux

package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	pydriver "github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pythons returns the interpreters that tests run: one with IPython, if this
// machine has one, and one without.
var pythons = sync.OnceValues(func() (rich, plain string) {
	candidates := []string{os.Getenv("E2BCTL_TEST_PYTHON"), "python3", "/usr/bin/python3", "/usr/local/bin/python3"}
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if name == "" || err != nil {
			continue
		}
		if exec.Command(path, "-c", "import IPython").Run() != nil {
			plain = cmp.Or(plain, path)
		} else {
			rich = cmp.Or(rich, path)
		}
	}
	return rich, plain
})

func richPython(t testing.TB) string {
	rich, _ := pythons()
	if rich == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI needs a Python with IPython: put that of e2bctl local setup first in PATH")
		}
		t.Skip("no Python with IPython here; name one in E2BCTL_TEST_PYTHON")
	}
	return rich
}

// engines runs a test with both engines.
func engines(t *testing.T, test func(t *testing.T, python string)) {
	t.Run("ipython", func(t *testing.T) {
		t.Parallel()
		test(t, richPython(t))
	})
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		_, plain := pythons()
		if plain == "" {
			t.Skip("no Python without IPython here")
		}
		test(t, plain)
	})
}

func newKernel(t testing.TB, python string) *Kernel {
	t.Helper()
	dir := t.TempDir()
	driver, err := pydriver.WriteDriver(dir)
	must.Do(t, err)
	home := filepath.Join(dir, "home")
	must.Do(t, os.Mkdir(home, 0o755))
	k := New(Spec{
		Python: []string{python}, Driver: driver, Dir: home, Logger: slog.New(slog.DiscardHandler),
		Environ: func() ([]string, error) { return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, nil },
	})
	t.Cleanup(func() { soon(t, "the end of the kernel", func() { k.Close() }) })
	return k
}

// soon calls f, and fails the test if f does not return.
func soon(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	patience.Receive(t, what, done)
}

// session is a client that collects its events.
type session struct {
	t      testing.TB
	client *Client
	events chan Event
}

func attach(t testing.TB, k *Kernel) *session {
	s := &session{t: t, events: make(chan Event, 4096)}
	s.client = k.Attach(func(ctx context.Context, e Event) {
		select {
		case s.events <- e:
			return // where there is room, an end of ctx loses nothing
		default:
		}
		select {
		case s.events <- e:
		case <-ctx.Done():
		}
	})
	t.Cleanup(func() { soon(t, "the end of the client", s.client.Close) })
	return s
}

func (s *session) submit(code string, options ...func(*jupyter.ExecuteRequest)) *Request {
	s.t.Helper()
	content := jupyter.ExecuteRequest{Code: code, StoreHistory: true, StopOnError: true}
	for _, o := range options {
		o(&content)
	}
	r := &Request{Header: jupyter.NewHeader("execute_request", "test", "test"), Content: jupyter.Encode(content)}
	var err error
	soon(s.t, "a request to be taken", func() { err = s.client.Submit(r) })
	must.Do(s.t, err)
	return r
}

// outcome is everything that arrived for one request.
type outcome struct {
	stdout, stderr string
	order          []string // types of the events, equal neighbours once
	results        []jupyter.DisplayData
	errors         []jupyter.ErrorContent
	reply          jupyter.ExecuteReply
}

func (o outcome) text() string {
	for _, r := range o.results {
		var text string
		if r.ExecutionCount != nil && json.Unmarshal(r.Data["text/plain"], &text) == nil {
			return text
		}
	}
	return ""
}

func (s *session) next() Event {
	s.t.Helper()
	return patience.Receive(s.t, "an event of the kernel", s.events)
}

// wait collects events up to the idle of r.
func (s *session) wait(r *Request) outcome {
	s.t.Helper()
	var o outcome
	for {
		e := s.next()
		if e.Request != r {
			continue
		}
		if n := len(o.order); n == 0 || o.order[n-1] != e.Type {
			o.order = append(o.order, e.Type)
		}
		switch e.Type {
		case "stream":
			var c jupyter.StreamContent
			s.decode(e, &c)
			if c.Name == "stdout" {
				o.stdout += c.Text
			} else {
				o.stderr += c.Text
			}
		case "execute_result", "display_data":
			var c jupyter.DisplayData
			s.decode(e, &c)
			o.results = append(o.results, c)
		case "error":
			var c jupyter.ErrorContent
			s.decode(e, &c)
			o.errors = append(o.errors, c)
		case "execute_reply":
			s.decode(e, &o.reply)
		case "status":
			if strings.Contains(string(e.Content), `"idle"`) {
				return o
			}
		}
	}
}

func (s *session) decode(e Event, into any) {
	s.t.Helper()
	if err := json.Unmarshal(e.Content, into); err != nil {
		s.t.Fatalf("%s: %v in %.200s", e.Type, err, e.Content)
	}
}

func (s *session) run(code string, options ...func(*jupyter.ExecuteRequest)) outcome {
	s.t.Helper()
	return s.wait(s.submit(code, options...))
}

func TestExecute(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		for _, test := range []struct{ code, stdout, stderr, text, failure string }{
			{code: "x = 1; x", text: "1"},
			{code: "x += 1; x", text: "2"},
			{code: "    y = 5\n    y", text: "5"},
			{code: "print('a'); print('é\\u2028')", stdout: "a\né\u2028\n"},
			{code: "import sys; print('e', file=sys.stderr)", stderr: "e\n"},
			{code: "undefined", failure: "NameError"},
			{code: "def", failure: "SyntaxError"},
			{code: "import sys; sys.exit(3)", failure: "SystemExit"},
			{code: "x", text: "2"},
			{code: "import asyncio; await asyncio.sleep(0); 7", text: "7"},
			{code: "print('\\ud800')", stdout: "\ufffd\n"},
			{code: "import os; os.write(1, b'\\xff\\xc3\\xa9'); None", stdout: "\ufffdé"},
			{code: "print('a'); os.system('echo b; echo c >&2'); print('d')", stdout: "a\nb\nd\n", stderr: "c\n"},
			{code: "import subprocess; subprocess.run(['echo', 'sub']); print('after')", stdout: "sub\nafter\n"},
			{code: "import sys; sys.stdout.buffer.write(b'raw\\n'); None", stdout: "raw\n"},
			{code: "float('nan')", text: "nan"},
			{code: "input('? ')", failure: "StdinNotImplementedError"},
			{code: "os.getcwd() == os.environ['HOME']", text: "True"},
			{code: "sys.path[0], sys.argv", text: "('', [''])"},
		} {
			o := s.run(test.code)
			failure := ""
			if len(o.errors) > 0 {
				failure = o.errors[0].Name
			}
			// IPython warns about exit on stderr.
			if o.stdout != test.stdout || o.text() != test.text {
				t.Errorf("%q: stdout %q, text %q, want %q, %q", test.code, o.stdout, o.text(), test.stdout, test.text)
			}
			if o.stderr != test.stderr && test.failure != "SystemExit" {
				t.Errorf("%q: stderr %q, want %q", test.code, o.stderr, test.stderr)
			}
			if failure != test.failure || o.reply.Name != test.failure {
				t.Errorf("%q: error %q, reply %+v, want %q in both", test.code, failure, o.reply, test.failure)
			}
		}
	})
}
