package agent

import (
	"context"
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
		mu.Lock()
		if (asked > 0) != (n > 0) {
			t.Errorf("%d tools: the kernels were asked %d times", n, asked)
		}
		mu.Unlock()
	}
}
