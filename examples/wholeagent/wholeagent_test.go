package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/examples/internal/leak"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

var key = leak.New("sk-")

// model is a scripted model, at http://model.test/v1 as seen from a sandbox: a proxy of this
// machine connects there.
type model struct {
	*httptest.Server
	// answers are its answers, in order; the questions are added to asked.
	answers []string
	asked   []string
	// during is called during each question, which is the last of asked at that time.
	during func(*http.Request)
}

// newModel starts a model and the cloud that reaches it.
func newModel(t *testing.T, answers ...string) (*model, *sandboxtest.Cloud) {
	m := &model{answers: answers, during: func(*http.Request) {}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	t.Setenv("HTTPS_PROXY", m.URL)
	t.Setenv("OPENAI_API_KEY", key.Text)
	t.Setenv("OPENAI_BASE_URL", "http://model.test/v1")
	t.Setenv("OPENAI_MODEL", "written-down")
	return m, leak.Cloud(t, local.WithProxyNames()) // no other resolver knows model.test
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		m.connect(w, r)
		return
	}
	var question struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil || r.Host != "model.test" || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "not a question", http.StatusBadRequest)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+key.Text || len(m.answers) == 0 {
		http.Error(w, "no such key", http.StatusUnauthorized)
		return
	}
	m.asked = append(m.asked, question.Messages[len(question.Messages)-1].Content)
	m.during(r)
	type message struct {
		Content string `json:"content"`
	}
	answer := map[string]any{"choices": []map[string]any{{"message": message{"Well.\n```python\n" + m.answers[0] + "\n```"}}}}
	m.answers = m.answers[1:]
	_ = json.NewEncoder(w).Encode(answer)
}

// connect is the proxy: it connects every request to this server.
func (m *model) connect(w http.ResponseWriter, r *http.Request) {
	far, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", m.Listener.Addr().String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(far, near); _ = far.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(near, far)
}

// program returns the agent of this example with a task.
func program(t *testing.T, task string, out, errOut io.Writer) *sandbox.ProgramParams {
	t.Helper()
	p := &sandbox.ProgramParams{Command: "python3 main.py", Stdin: strings.NewReader(task), Stdout: out, Stderr: errOut}
	must.Do(t, complete(p))
	return p
}

// TestAgents checks that a manager and the agent that it calls solve a task in the sandbox,
// that they reach only the model, and that the key is only in their own process.
func TestAgents(t *testing.T) {
	m, cloud := newModel(t,
		"import os\nprint(os.getpid())",
		"print(fibonacci(20))",
		"import urllib.request\ntry:\n    urllib.request.urlopen('http://elsewhere.test/')\nexcept OSError as e:\n    print('refused', e)",
		"n = helper('Give the 20th Fibonacci number.')",
		"a, b = 0, 1\nfor _ in range(20): a, b = b, a + b\nfinal_answer(a)", // the helper
		"final_answer(f'It is {n}.')",
	)
	sb := cloud.Create(t)
	m.during = func(*http.Request) {
		if len(m.asked) != 2 {
			return
		}
		// The agent has reported its process id in the output of its code.
		pid := strings.TrimSpace(m.asked[1])
		want := []string{"environ of " + pid, "memory of " + pid}
		if found, err := key.Everywhere(t.Context(), sb); err != nil || !slices.Equal(found, want) {
			t.Errorf("the agent is process %s, and the key is in %q, %v", pid, found, err)
		}
	}
	var out, errOut strings.Builder
	if err := run(t.Context(), sb, nil, program(t, "What is the 20th Fibonacci number?", &out, &errOut)); err != nil {
		t.Fatalf("%v\n%s", err, errOut.String())
	}
	if out.String() != "It is 6765.\n" {
		t.Errorf("the answer is %q", out.String())
	}
	for i, want := range []string{
		"What is the 20th Fibonacci number?", "", "NameError: name 'fibonacci' is not defined", "refused HTTP Error 403", "Give the 20th Fibonacci number.", "(no output)",
	} {
		if i >= len(m.asked) || !strings.Contains(m.asked[i], want) {
			t.Fatalf("question %d has no %q in %q", i+1, want, m.asked)
		}
	}
	if !strings.Contains(errOut.String(), "--- helper, step 1\na, b = 0, 1\n") {
		t.Errorf("it tells of itself %q", errOut.String())
	}
	if found, err := key.Everywhere(t.Context(), sb); err != nil || len(found) > 0 {
		t.Errorf("afterwards the key is in %q, %v", found, err)
	}
}

// TestStatus checks that the exit status of the agent is the status of the call.
func TestStatus(t *testing.T) {
	_, cloud := newModel(t)
	var errOut strings.Builder
	err := run(t.Context(), cloud.Create(t), nil, program(t, "a task", nil, &errOut))
	if failed, ok := errors.AsType[*sandbox.ExitError](err); !ok || failed.Result.ExitCode != 1 || !strings.HasPrefix(errOut.String(), "the model gives no answer: HTTP Error 401") {
		t.Errorf("%v\n%s", err, errOut.String())
	}
}

// TestCancel checks that an agent that is cancelled in the middle of a question asks no more.
func TestCancel(t *testing.T) {
	m, cloud := newModel(t, "final_answer(1)")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cut := make(chan struct{})
	m.during = func(r *http.Request) {
		cancel()
		<-r.Context().Done()
		close(cut)
	}
	if err := run(ctx, cloud.Create(t), nil, program(t, "a task", nil, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	<-cut
}

// Without a model the answers are the example's own.
func TestScript(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_MODEL", "")
	var out, errOut strings.Builder
	err := wholeagent(t.Context(), true, nil, &sandbox.ProgramParams{Command: "python3 main.py", Stdout: &out, Stderr: &errOut})
	if err != nil || out.String() != "It is 6765.\n" || !strings.HasPrefix(errOut.String(), "no model is set") {
		t.Errorf("%q, %v\n%s", out.String(), err, errOut.String())
	}
}

// TestDirectory runs another agent, with its own directory and packages, on a service known
// from its settings.
func TestDirectory(t *testing.T) {
	_, cloud := newModel(t)
	cloud.Setenv(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"agent.py": "import os, sys, quickstart_numbers\nprint(os.listdir(), sys.stdin.read())\n", ".env": "SECRET=1\n"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	var out, errOut strings.Builder
	err := wholeagent(t.Context(), false, []string{"../quickstart/wheels/quickstart_numbers-1.0-py3-none-any.whl"}, &sandbox.ProgramParams{
		Dir: dir, Exclude: unwanted, Command: "python3 agent.py", Stdin: strings.NewReader("a task"), Stdout: &out, Stderr: &errOut,
	})
	if err != nil || out.String() != "['agent.py'] a task\n" {
		t.Errorf("%q, %v\n%s", out.String(), err, errOut.String())
	}
	t.Setenv("OPENAI_API_KEY", "")
	if err := wholeagent(t.Context(), false, nil, &sandbox.ProgramParams{}); err == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
}
