package kernelconn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestFaultsOfRequests checks whether the code of a request that failed may have run, its error, and whether the next request
// has to wait for an interrupt.
func TestFaultsOfRequests(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	fails := func([]byte) error { return mine }
	for name, tt := range map[string]struct {
		answer  http.HandlerFunc
		line    func([]byte) error
		want    error
		started bool
		cut     bool
	}{
		"no answer":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, io.EOF, false, false},
		"another language":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "kernel is not available", 500) }, nil, ErrUnknownLanguage, false, false},
		"the reader fails":    {func(w http.ResponseWriter, _ *http.Request) { say(w, beginLine, endLine) }, fails, mine, true, true},
		"no end":              {func(w http.ResponseWriter, _ *http.Request) { say(w, beginLine) }, nil, ErrLost, true, true},
		"it breaks off":       {func(w http.ResponseWriter, _ *http.Request) { say(w, beginLine); panic(http.ErrAbortHandler) }, nil, ErrLost, true, true},
		"empty lines, an end": {func(w http.ResponseWriter, _ *http.Request) { say(w, "", beginLine, "", endLine) }, nil, nil, true, false},
		"the kernel's end": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, `{"type":"error","name":"ContextRestarting","value":""}`)
		}, nil, ErrDied, true, true},
	} {
		ks := overHTTP(t, tt.answer)
		started, err := ks.ExecuteOverHTTP(t.Context(), HTTPCall{Code: "x", Line: tt.line})
		if cut := len(ks.requests) > 0; started != tt.started || !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || cut != tt.cut {
			t.Errorf("%s: started %v with error %v and %d turns, want %v, %v and a cut: %v", name, started, err, len(ks.requests), tt.started, tt.want, tt.cut)
		}
		if broke := name == "it breaks off"; broke != errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: got error %v, want that of the connection: %v", name, err, broke)
		}
	}
}

// TestEnvsThatAreNotSet checks that code does not run without its environment, which the next call sets again.
func TestEnvsThatAreNotSet(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		status := "error"
		var ran []string
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			ran = append(ran, jupytertest.Code(m))
			k.Begin(m)
			k.Say(m, jupyter.Shell, "execute_reply", map[string]any{"status": status, "ename": "OSError", "evalue": "no room"})
			k.Status(m, "idle")
		})
		envs := map[string]string{"A": "1"}
		ks := s.kernelsOf(Options{Envs: envs})
		_, err := run(t.Context(), ks, "x", Handler{})
		if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "set environment variables: OSError: no room") {
			t.Errorf("got error %v, want the reason", err)
		}
		status = "ok"
		_, err = run(t.Context(), ks, "x", Handler{})
		must.Do(t, err)
		if diff := cmp.Diff([]string{completeEnvs(envs), completeEnvs(envs), "x"}, ran); diff != "" {
			t.Errorf("code (-want +got):\n%s", diff)
		}
		s.contexts = func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `[{"id":"b","language":"bash"}]`)
		}
		s.execute = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInsufficientStorage) }
		_, err = s.kernelsOf(Options{Envs: envs}).Execute(t.Context(), Call{Language: "bash"})
		if e, ok := errors.AsType[*api.Error](err); !ok || e.StatusCode != http.StatusInsufficientStorage || !errors.Is(err, ErrNotSent) || len(ran) != 3 {
			t.Errorf("another language: got error %v after %d runs, want the interpreter's, and no code", err, len(ran))
		}
	})
}

// TestRefusedConnections checks the error of a call whose connection is refused, and that a call that is given up does not wait.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	status := 0
	s.socket = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	s.rest = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) } // no server of kernels
	ks := s.kernels()
	for _, status = range []int{http.StatusNotFound, http.StatusForbidden} {
		_, err := ks.Open(t.Context(), "", "")
		if refused, ok := errors.AsType[*jupyter.DialError](err); !ok || refused.StatusCode != status {
			t.Errorf("got error %v, want a refusal with status %d", err, status)
		}
	}
	mine := errors.New("mine")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	release, err := ks.exclusively(t.Context())
	must.Do(t, err)
	if _, err := ks.Open(ended, "", ""); !errors.Is(err, mine) {
		t.Errorf("while another call opens a connection: got error %v, want %v", err, mine)
	}
	if err := ks.endDead(ended, "a", false, &api.Error{StatusCode: 500}); !errors.Is(err, mine) {
		t.Errorf("got error %v, want %v", err, mine)
	}
	release()
	for _, failed := range []error{mine, &api.Error{StatusCode: 404}, &api.Error{StatusCode: 500}} { // of the last one, nothing is known to be dead
		if err := ks.endDead(t.Context(), "a", true, failed); err != failed { //nolint:errorlint // the error itself
			t.Errorf("got error %v, want %v itself", err, failed)
		}
	}
	s.contexts = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	if _, err := ks.bury(t.Context()); err == nil || !strings.Contains(err.Error(), "list contexts: ") {
		t.Errorf("got error %v, want one of the list", err)
	}
}

// TestForgottenContexts checks what is left of a context that was ended, and how the death of its kernel is reported.
func TestForgottenContexts(t *testing.T) {
	t.Parallel()
	ks := New(Options{})
	ks.languages, ks.defaults = map[string]string{"a": "python", "b": "python"}, map[string]string{"python": "a"}
	ks.heard["a"], ks.heard["b"] = struct{}{}, struct{}{}
	ks.lose("a", "why")
	ks.lose("b", "why")
	ks.drop("b")
	left := map[string]any{"defaults": ks.defaults, "languages": ks.languages, "heard": ks.heard, "lost": ks.lost}
	want := map[string]any{
		"defaults": map[string]string{"python": "a"}, "languages": map[string]string{"a": "python"}, "heard": map[string]struct{}{"a": {}}, "lost": map[string]string{"python": "why"},
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("want all of the default context and nothing of the other (-want +got):\n%s", diff)
	}
	ks.drop("a")
	if len(ks.defaults)+len(ks.languages)+len(ks.heard)+len(ks.lost) > 0 {
		t.Errorf("got %v, %v and %v, want nothing", ks.defaults, ks.languages, ks.lost)
	}
	s := newServer(t)
	s.kernel = answeringAll(func(*jupytertest.Kernel, *jupyter.Message) {})
	for text, want := range map[string]string{
		`{"execution_state":"busy"}`: "", `{"execution_state":"dead"}`: "its kernel died while its code was interrupted", `{"execution_state":"dead","reason":"memory"}`: "its kernel died while its code was interrupted: memory",
	} {
		ks := s.kernels()
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		k.noteDeath(content("", jupyter.IOPub, "status", text))
		if want != "" {
			patience.Receive(t, "the end of the connection", k.Done())
		}
		if err := ks.Loss(testContext); (err != nil) != (want != "") || err != nil && err.Error() != ErrRestarted.Error()+": "+want {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
}

// TestFaultsOfCalls checks the error of a call whose handler fails, whose content cannot be sent, or that may not use the kernel.
func TestFaultsOfCalls(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = jupytertest.Answering(printX)
		ks := s.kernels()
		mine := errors.New("mine")
		if _, err := run(t.Context(), ks, "x", Handler{Message: func(*jupyter.Message) error { return mine }}); !errors.Is(err, mine) || errors.Is(err, ErrNotSent) {
			t.Errorf("the handler fails: got error %v, want %v", err, mine)
		}
		if err := ks.Ask(WithWaiting(t.Context(), testSandbox, testContext), Question{Kind: "complete"}, nil); !errors.Is(err, ErrSameContext) {
			t.Errorf("a question of code that waits: got error %v, want %v", err, ErrSameContext)
		}
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		if _, err := k.send(request{kind: "complete", content: func() {}}); !errors.Is(err, ErrNotSent) {
			t.Errorf("content that cannot be sent: got error %v, want %v", err, ErrNotSent)
		}
		must.Do(t, k.takeTurn(t.Context(), nil))
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(mine)
		for what, err := range map[string]error{
			"the function for the queue fails": k.takeTurn(t.Context(), func(int) error { return mine }), "it is given up": k.takeTurn(ended, nil),
		} {
			if !errors.Is(err, ErrNotSent) || !errors.Is(err, mine) || k.inTurn.Load() != 1 {
				t.Errorf("%s: got error %v and %d calls in turn, want %v and one", what, err, k.inTurn.Load(), mine)
			}
		}
		k.release()
		open, err := ks.shut(t.Context(), testContext)
		must.Do(t, err)
		if err := k.takeTurn(ended, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, mine) || k.inTurn.Load() != 0 || len(k.turn) > 0 {
			t.Errorf("at the gate: got error %v and %d calls in turn, want %v and none", err, k.inTurn.Load(), mine)
		}
		open()
		ks.lose(testContext, "why")
		if err := k.beginUse(true); err != nil || ks.Loss(testContext) != nil {
			t.Errorf("a loss that does not matter: got error %v", err)
		}
		ks.lose(testContext, "why")
		if err := k.beginUse(false); !errors.Is(err, ErrRestarted) {
			t.Errorf("a loss: got error %v, want %v", err, ErrRestarted)
		}
	})
}
