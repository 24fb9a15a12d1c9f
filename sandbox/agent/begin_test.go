package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// The refusal of a package that was named by an import says where imports are allowed.
func TestAdviseImport(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"json", "numpy.*"} {
		_, installing := install(t.Context(), new(sandbox.Packages), &Params{Packages: []string{name}})
		_, guarding := new(Guard).config([]string{name})
		for _, err := range []error{installing, guarding} {
			if refused, ok := errors.AsType[*sandbox.RequirementError](err); !ok || strings.Contains(refused.Reason, "Guard") || !strings.Contains(err.Error(), "name it in Guard.Allow") {
				t.Errorf("%s: got %v, want advice about Guard.Allow that only the run adds", name, err)
			}
		}
	}
	_, err := install(t.Context(), new(sandbox.Packages), &Params{Packages: []string{"--pre"}})
	if err == nil || strings.Contains(err.Error(), "Guard") {
		t.Errorf("an option: got %v, want an error without advice about imports", err)
	}
}

// All errors of Begin are without the values of Params.Redact.
func TestBeginRedactsErrors(t *testing.T) {
	t.Parallel()
	const secret = "t0k3n-0123456789"
	sb := &sandbox.Sandbox{Packages: new(sandbox.Packages)}
	for name, p := range map[string]*Params{
		"the guard":         {Guard: &Guard{Allow: []string{"a " + secret}}},
		"the guard, a link": {Guard: &Guard{}, Packages: []string{"https://user:" + secret + "@host/x"}},
		"a link to install": {Packages: []string{"https://user:" + secret + "@host/x"}},
	} {
		p.Redact = []string{secret}
		_, err := Begin(t.Context(), sb, p)
		if err == nil || strings.Contains(err.Error(), secret[:minBeginning]) || !strings.Contains(err.Error(), redacted) {
			t.Errorf("%s: got %v, want an error with %s in place of the secret", name, err, redacted)
		}
		if !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want an invalid argument", name, err)
		}
	}
}

// TestNothingToInstall checks that a run without packages installs nothing.
func TestNothingToInstall(t *testing.T) {
	t.Parallel()
	installed, err := install(t.Context(), nil, &Params{})
	if must.Do(t, err); installed != nil {
		t.Errorf("got %+v, want nothing", installed)
	}
}

// TestNewRun checks the time at which a run ends, and that it is refused if its secrets cannot be redacted.
func TestNewRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for limit, want := range map[time.Duration]time.Time{0: {}, time.Hour: time.Now().Add(time.Hour)} {
			r, err := newRun(&runs{}, failingHost{}, &runContext{}, Params{Limits: Limits{RunTimeout: limit}})
			if must.Do(t, err); !r.deadline.Equal(want) {
				t.Errorf("a limit of %v: the run ends at %v, want %v", limit, r.deadline, want)
			}
		}
		if _, err := newRun(&runs{}, failingHost{}, &runContext{}, Params{Redact: []string{"abc"}}); err == nil || !strings.Contains(err.Error(), "Params.Redact") {
			t.Errorf("got error %v, want one about Params.Redact", err)
		}
	})
}

// TestBeginRefusesNames checks that Begin refuses names that collide, before it asks for anything.
func TestBeginRefusesNames(t *testing.T) {
	t.Parallel()
	st := state.New()
	set(t, st, finalAnswer, 1)
	_, err := Begin(t.Context(), &sandbox.Sandbox{}, &Params{State: st})
	if err == nil || !strings.Contains(err.Error(), "agent: begin a run: the variable") {
		t.Errorf("got error %v, want that the variable's name is taken", err)
	}
}

// Packages beside a lock are requirements on it.
func TestPackagesBesideALock(t *testing.T) {
	t.Parallel()
	_, err := install(t.Context(), new(sandbox.Packages), &Params{Lock: new(sandbox.LockFile), Packages: []string{"--pre"}})
	if refused, ok := errors.AsType[*sandbox.RequirementError](err); !ok || refused.Requirement != "--pre" {
		t.Errorf("got %v, want the refusal of the requirement", err)
	}
}

// Begin refuses a run with tools, be it one, if others could call them, and changes nothing. It asks
// the kernels only then.
func TestToolsNeedPrivateKernels(t *testing.T) {
	t.Parallel()
	tool := func(name string) Tool {
		return MustTool(name, "", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	}
	for n, tools := range [][]Tool{nil, {tool("f")}, {tool("f"), tool("g")}} {
		var mu sync.Mutex
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/api/kernels":
				mu.Lock()
				asked++
				mu.Unlock()
				_, _ = io.WriteString(w, "[]")
			case r.Header.Get("E2b-Sandbox-Port") != "": // the run itself does not get far
				w.WriteHeader(http.StatusNotFound)
			default:
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","clientID":"c","envdVersion":"0.6.13"}`)
			}
		}))
		t.Cleanup(server.Close)
		client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(server.URL), sandbox.WithSandboxURL(server.URL), sandbox.WithMaxRetries(0))
		must.Do(t, err)
		t.Cleanup(func() { client.Close() })
		sb, err := client.Create(t.Context())
		must.Do(t, err)
		t.Cleanup(func() { sb.Close() })
		var p *Params // nil is a run without anything
		if tools != nil {
			p = &Params{Tools: tools}
		}
		_, err = Begin(t.Context(), sb, p)
		if err == nil || errors.Is(err, sandbox.ErrPublicKernel) != (n > 0) {
			t.Errorf("%d tools: got %v, want the refusal: %v", n, err, n > 0)
		}
		if n == 0 && err != nil && !strings.HasPrefix(err.Error(), "sandbox: begin a run in i1: ") {
			t.Errorf("got %v, want that the sandbox has no context", err)
		}
		mu.Lock()
		if (asked > 0) != (n > 0) {
			t.Errorf("%d tools: the kernels were asked %d times", n, asked)
		}
		mu.Unlock()
	}
}

// TestBegunRun checks a run that begins over the websocket of a kernel: what its audit says of the sandbox, that the
// context is taken until the run is closed, and that each handle knows only its own runs.
func TestBegunRun(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/channels"):
			k, err := jupytertest.Upgrade(t, w, r)
			if err != nil {
				t.Error(err)
				return
			}
			defer k.Socket.Close()
			jupytertest.Answering(answerRun(t))(k)
		case r.URL.Path == "/contexts":
			_, _ = io.WriteString(w, `[{"id":"c0ffee","language":"python","cwd":"/home/user"}]`)
		case r.Header.Get("E2b-Sandbox-Port") != "":
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t1","clientID":"c","envdVersion":"0.6.13"}`)
		}
	}))
	t.Cleanup(server.Close)
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(server.URL), sandbox.WithSandboxURL(server.URL), sandbox.WithMaxRetries(0))
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	sb, err := client.Create(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { sb.Close() })
	for range 2 {
		var audit bytes.Buffer
		r, err := Begin(t.Context(), sb, &Params{Context: "c0ffee", Audit: &audit})
		must.Do(t, err)
		var line struct{ Event, Sandbox_ID, Template, Context string } //nolint:revive // as in the audit
		must.Do(t, json.Unmarshal(audit.Bytes(), &line))
		if line.Event != "begin" || line.Sandbox_ID != "i1" || line.Template != "t1" || line.Context != "c0ffee" {
			t.Errorf("the audit begins with %s", &audit)
		}
		if _, err := Begin(t.Context(), sb, &Params{Context: "c0ffee"}); !errors.Is(err, ErrContextBusy) {
			t.Errorf("a second run: got error %v, want %v", err, ErrContextBusy)
		}
		must.Do(t, r.Close())
	}
}

// answerRun answers requests as a kernel that has the modules and the tools of a run.
func answerRun(t *testing.T) func(*jupytertest.Kernel, *jupyter.Message) {
	return func(k *jupytertest.Kernel, m *jupyter.Message) {
		var request jupyter.ExecuteRequest
		if err := json.Unmarshal(m.Content, &request); err != nil {
			t.Error(err)
		}
		values := map[string]any{}
		for key := range request.UserExpressions {
			values[key] = map[string]any{"token": "t", "known": true}
		}
		k.Begin(m)
		k.Say(m, jupyter.Shell, "execute_reply", replyOf(t, values))
		k.Status(m, "idle")
	}
}
