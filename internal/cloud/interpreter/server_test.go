//go:build linux

package interpreter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python returns an interpreter, with IPython if this machine has one.
var python = sync.OnceValue(func() string {
	last := ""
	for _, name := range []string{os.Getenv("E2BCTL_TEST_PYTHON"), "python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if name == "" || err != nil {
			continue
		}
		if last = path; exec.Command(path, "-c", "import IPython").Run() == nil {
			return path
		}
	}
	return last
})

// ports is a server with both its ports.
type ports struct {
	*Server
	interpreter, jupyter string
	client               *http.Client
}

func serve(t testing.TB, token string, options ...func(*Options)) *ports {
	t.Helper()
	if python() == "" {
		t.Skip("no python3 here")
	}
	home := filepath.Join(t.TempDir(), "home")
	must.Do(t, os.Mkdir(home, 0o755))
	o := Options{
		Python: []string{python()}, Dir: home, Scratch: t.TempDir(), Token: func() string { return token }, Logger: slog.New(slog.DiscardHandler),
		Environ: func() ([]string, error) {
			return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GLOBAL=global"}, nil
		},
	}
	for _, option := range options {
		option(&o)
	}
	s, err := New(o)
	must.Do(t, err)
	interpreter, jupyter := httptest.NewServer(s.Interpreter()), httptest.NewServer(s.Jupyter())
	p := &ports{Server: s, interpreter: interpreter.URL, jupyter: jupyter.URL, client: interpreter.Client()}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		interpreter.Close()
		jupyter.Close()
	})
	return p
}

// call returns status and body.
func (p *ports) call(t testing.TB, ctx context.Context, method, url, body string, header ...string) (int, string) {
	t.Helper()
	response := p.open(t, ctx, method, url, body, header...)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	must.Do(t, err)
	return response.StatusCode, string(data)
}

func (p *ports) open(t testing.TB, ctx context.Context, method, url, body string, header ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	must.Do(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := p.client.Do(request)
	must.Do(t, err)
	return response
}

type line struct {
	Type           string         `json:"type"`
	Text           string         `json:"text"`
	Timestamp      string         `json:"timestamp"`
	Name           string         `json:"name"`
	Value          string         `json:"value"`
	Traceback      string         `json:"traceback"`
	ExecutionCount int            `json:"execution_count"`
	JSON           any            `json:"json"`
	Extra          map[string]any `json:"extra"`
	IsMain         bool           `json:"is_main_result"`
}

// run runs code with the requests of the SDKs.
func (p *ports) run(t testing.TB, body map[string]any) (lines []line) {
	t.Helper()
	data, err := json.Marshal(body)
	must.Do(t, err)
	response := p.open(t, t.Context(), http.MethodPost, p.interpreter+"/execute", string(data))
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("got %d %s, want http.StatusOK", response.StatusCode, text)
	}
	if got, ok := response.Header["Content-Type"]; ok {
		t.Errorf("Content-Type: %q, the service sends none", got)
	}
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		if bytes.ContainsFunc(scanner.Bytes(), func(r rune) bool { return r >= 0x80 }) {
			t.Errorf("not ASCII: %q", scanner.Text())
		}
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			t.Fatalf("%v: %q", err, scanner.Text())
		}
		lines = append(lines, l)
	}
	if n := len(lines); n == 0 || lines[n-1].Type != "end_of_execution" {
		t.Fatalf("last line is not end_of_execution: %+v", lines)
	}
	return lines[:len(lines)-1]
}

// merged returns all text of one type.
func merged(lines []line, kind string) string {
	var text strings.Builder
	for _, l := range lines {
		if l.Type == kind {
			text.WriteString(l.Text + l.Name)
		}
	}
	return text.String()
}

func TestExecute(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	for _, test := range []struct {
		code                         string
		stdout, stderr, text, failed string
		count                        int
	}{
		{code: "x = 1; x", text: "1", count: 1},
		{code: "x += 1; x", text: "2", count: 2},
		{code: "print('é', '\\U0001f600')", stdout: "é 😀\n", count: 3},
		{code: "'abc'", text: "abc", count: 4},
		{code: "nope", failed: "NameError", count: 5},
		{code: "import os; os.environ['GLOBAL']", text: "global", count: 6},
		{code: "import os; os.getpid() and os._exit(1)", failed: "ContextRestarting", count: 7},
		{code: "x", failed: "NameError", count: 1},
	} {
		lines := p.run(t, map[string]any{"code": test.code, "context_id": nil, "language": nil, "env_vars": nil})
		if lines[0].Type != "number_of_executions" || lines[0].ExecutionCount != test.count {
			t.Errorf("%q: first line %+v, want execution %d", test.code, lines[0], test.count)
		}
		for kind, want := range map[string]string{"stdout": test.stdout, "stderr": test.stderr, "result": test.text, "error": test.failed} {
			if got := merged(lines, kind); got != want {
				t.Errorf("%q: %s is %q, want %q", test.code, kind, got, want)
			}
		}
	}
}

// The default kernel starts when a client shows that it will run code, and
// not earlier: a sandbox without a kernel is small.
func TestDefaultKernelStarts(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	for path, want := range map[string]bool{"/health": false, "/nowhere": false, "/contexts": true} {
		_, before := s.kernels[0].State()
		ask(s.Interpreter(), http.MethodGet, path, "")
		s.work.Wait()
		if state, after := s.kernels[0].State(); (before != after) != want {
			t.Errorf("GET %s: the kernel, which is %s, was started: %v, want %v", path, state, before != after, want)
		}
	}
}
