package kernelconn

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// printX answers a call like code that prints x.
func printX(k *jupytertest.Kernel, m *jupyter.Message) {
	k.Begin(m)
	k.Stream(m, "stdout", "x")
	k.Reply(m, "ok")
	k.Status(m, "idle")
}

func TestExecuteIfFree(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = jupytertest.Answering(printX)
		ks := s.kernels()
		if k := ks.Opened("python"); k != nil {
			t.Errorf("%s is open before any call", k.ID())
		}
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		if opened := ks.Opened("python"); opened != k || k.ID() != testContext || k.Language() != "python" {
			t.Errorf("opened %s, in %s; then %v is open", k.ID(), k.Language(), opened)
		}
		if _, err := run(t.Context(), ks, "y", printing(func() {
			if _, err := k.ExecuteIfFree(t.Context(), jupyter.ExecuteRequest{Code: "x"}); err == nil {
				t.Error("it ran beside other code")
			}
		})); err != nil {
			t.Fatal(err)
		}
		if reply, err := k.ExecuteIfFree(t.Context(), jupyter.ExecuteRequest{Code: "x"}); err != nil || reply.Status != "ok" {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

// A call whose connection turns out to have ended is made again over another one, a few times, unless
// it is over or failed for another reason.
func TestCallsOverAnotherConnection(t *testing.T) {
	t.Parallel()
	ks := newServer(t).kernels()
	ctx, cancel := context.WithCancel(t.Context())
	other := errors.New("other")
	for _, tt := range []struct {
		answers []error
		want    error
	}{
		{[]error{nil}, nil},
		{[]error{errStale, nil}, nil},
		{[]error{errStale, errStale, nil}, nil},
		{[]error{errStale, errStale, errStale}, errStale},
		{[]error{errStale, other}, other},
		{[]error{errStale, context.Canceled}, context.Canceled},
	} {
		calls := 0
		err := ks.overOpen(ctx, "", "", func(*Kernel) error {
			calls++
			return tt.answers[calls-1]
		})
		if !errors.Is(err, tt.want) || calls != len(tt.answers) {
			t.Errorf("%v: got %v after %d calls, want %v", tt.answers, err, calls, tt.want)
		}
	}
	calls := 0
	err := ks.overOpen(ctx, "", "", func(*Kernel) error {
		calls++
		cancel()
		return errStale
	})
	if !errors.Is(err, errStale) || calls != 1 {
		t.Errorf("a call that was given up: got %v after %d calls", err, calls)
	}
}

// Code may ask for input only if someone answers, and the server's words for its end are known.
func TestWhatRequestsAndRepliesSay(t *testing.T) {
	t.Parallel()
	input := func(context.Context, string, bool) (string, error) { return "", nil }
	for _, h := range []Handler{{}, {Input: input}} {
		if got := codeRequest(jupyter.ExecuteRequest{AllowStdin: true}, h).content.(jupyter.ExecuteRequest); got.AllowStdin != (h.Input != nil) || got.UserExpressions == nil {
			t.Errorf("got %+v for a handler that answers: %v", got, h.Input != nil)
		}
	}
	for _, tt := range []struct {
		status, name                      string
		ran, unsent, dropped, interrupted bool
	}{
		{"ok", "", true, false, false, false},
		{"error", "KeyboardInterrupt", true, false, false, true},
		{"error", "ValueError", true, false, false, false},
		{"aborted", "", false, false, true, false},
		{"abort", "", false, false, true, false},
		{"aborted", "", true, false, false, true},
		{"abort", "", true, false, false, true},
		{"", "", false, true, true, false},
	} {
		e := &execution{ran: tt.ran, unsent: tt.unsent}
		e.reply.Status, e.reply.Name = tt.status, tt.name
		if e.dropped() != tt.dropped || e.wasInterrupted() != tt.interrupted {
			t.Errorf("%+v: dropped %v, interrupted %v", tt, e.dropped(), e.wasInterrupted())
		}
	}
}
