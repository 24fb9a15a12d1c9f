package kernelconn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// TestAskGivenUp checks that cancelling a question to the kernel does not interrupt it, and that
// the next request is answered.
func TestAskGivenUp(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		var requests atomic.Int32
		s.rest = func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.WriteHeader(http.StatusNoContent)
		}
		asked := make(chan struct{})
		s.kernel = answeringAll(func(k *jupytertest.Kernel, m *jupyter.Message) {
			if m.Header.MsgType == "complete_request" {
				k.Status(m, "busy")
				close(asked)
				return
			}
			k.Begin(m)
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		ks := s.kernels()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		var reply struct{}
		if err := ks.Ask(ctx, Question{Kind: "complete"}, &reply); !errors.Is(err, context.Canceled) {
			t.Errorf("a question that is given up: %v, want that it was cancelled", err)
		}
		if _, err := run(t.Context(), ks, "x", Handler{}); err != nil {
			t.Errorf("the code after it: %v", err)
		}
		if n := requests.Load(); n != 0 {
			t.Errorf("the kernels' server had %d requests, want no interrupt", n)
		}
	})
}

// A question takes nothing from the next code: it still learns that the variables are
// gone.
func TestAskKeepsLoss(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = answeringAll(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Status(m, "busy")
			k.Say(m, jupyter.Shell, strings.TrimSuffix(m.Header.MsgType, "_request")+"_reply", map[string]any{"status": "ok", "matches": []string{"a"}})
			k.Status(m, "idle")
		})
		ks := s.kernels()
		var reply struct{ Matches []string }
		ask := func() error { return ks.Ask(t.Context(), Question{Kind: "complete"}, &reply) }
		if err := ask(); err != nil || !slices.Equal(reply.Matches, []string{"a"}) {
			t.Fatalf("got %v, %v, want the answer", reply.Matches, err)
		}
		ks.lose(testContext, "for a test")
		if err := ask(); err != nil {
			t.Errorf("a question to a fresh kernel: %v", err)
		}
		if _, err := run(t.Context(), ks, "x", Handler{}); !errors.Is(err, ErrRestarted) {
			t.Errorf("code in a fresh kernel: got %v, want %v", err, ErrRestarted)
		}
	})
}

// A question that a kernel cannot answer returns an error that says so.
func TestAskRefused(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = answeringAll(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Status(m, "busy")
			content := map[string]any{"status": "error", "ename": "ValueError", "evalue": "no such thing"}
			if m.Header.MsgType == "inspect_request" {
				content = map[string]any{"status": "ok", "found": "maybe"}
			}
			k.Say(m, jupyter.Shell, strings.TrimSuffix(m.Header.MsgType, "_request")+"_reply", content)
			k.Status(m, "idle")
		})
		ks := s.kernels()
		for kind, want := range map[string]string{"complete": "ValueError: no such thing", "inspect": "malformed"} {
			var reply struct{ Found bool }
			if err := ks.Ask(t.Context(), Question{Kind: kind}, &reply); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", kind, err, want)
			}
		}
	})
}

// answeringAll returns a kernel that calls f with every request of any type.
func answeringAll(f func(k *jupytertest.Kernel, m *jupyter.Message)) func(*jupytertest.Kernel) {
	return func(k *jupytertest.Kernel) {
		for m := k.Next(); m != nil; m = k.Next() {
			f(k, m)
		}
	}
}
