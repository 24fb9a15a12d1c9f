package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// TestCutByPause checks that code that a pause cuts off waits until the pause is settled,
// and continues over a dial that may take as long as a resume. Otherwise a dial may take
// seconds.
func TestCutByPause(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"paused": true, "only cut": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				cutting := &cuttingServer{t: t, keeping: keepsAll, v1: true, numbered: true, cut: cut{at: 3, times: 1}}
				s.socket, s.rest = cutting.ServeHTTP, cutting.interrupt
				settled := false
				s.settle = func(context.Context) bool { settled = true; return paused }
				s.dialled = func(ctx context.Context) {
					until, limited := ctx.Deadline()
					if limited != settled || settled && (time.Until(until) > resumeTime) != paused {
						t.Errorf("got a dial until %v (settled: %v), want one that may take as long as a resume: %v", until, settled, paused)
					}
				}
				if printed, err := run(t.Context(), s.kernels(), "code", Handler{}); err != nil || printed != "<0><1><2>" || !settled {
					t.Errorf("got %q, %v, settled %v, want all of it", printed, err, settled)
				}
			})
		})
	}
}

// TestSentAfterPause checks code that is sent over a websocket that a pause has ended,
// before this program notices that. The code is sent again if the kernel's numbers prove
// that it never arrived.
func TestSentAfterPause(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		paused, numbered, after bool
		runs                    int // if the code is known not to have run, or to be complete
	}{
		{paused: true, numbered: true, runs: 1},
		{paused: true},
		{numbered: true},
		{paused: true, numbered: true, after: true, runs: 1},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				cutting := &cuttingServer{t: t, keeping: keepsAll, v1: true, numbered: test.numbered, cut: cut{fromClient: true, after: test.after, times: 1}}
				s.socket, s.rest = cutting.ServeHTTP, cutting.interrupt
				s.settle = func(context.Context) bool { return test.paused }
				printed, err := run(t.Context(), s.kernels(), "code", Handler{})
				switch {
				case test.runs == 0 && (!errors.Is(err, ErrLost) || cutting.runs != 0):
					t.Errorf("got %v and %d runs, want ErrLost", err, cutting.runs)
				case test.runs == 1 && (err != nil || printed != "<0><1><2>" || cutting.runs != 1):
					t.Errorf("got %q, %v and %d runs, want all of one run", printed, err, cutting.runs)
				}
			})
		})
	}
}

// TestGivenUpWhilePaused checks that a caller does not wait longer than it wants for the
// end of a pause, and that the sandbox is not dialled for it.
func TestGivenUpWhilePaused(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		cutting := &cuttingServer{t: t, keeping: keepsAll, v1: true, numbered: true, cut: cut{at: 3, times: 1}}
		s.socket, s.rest = cutting.ServeHTTP, cutting.interrupt
		interrupts := 0
		s.rest = func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/interrupt") {
				interrupts++
			}
			cutting.interrupt(w, r)
		}
		ctx, leave := context.WithCancel(t.Context())
		calls := 0
		s.settle = func(ctx context.Context) bool {
			if calls++; calls == 1 {
				leave()
				<-ctx.Done()
			} else if interrupts > 0 {
				t.Error("got an interrupt during the pause, want it to be settled first")
			}
			return true
		}
		_, err := run(ctx, s.kernels(), "code", Handler{})
		if _, ok := errors.AsType[*InterruptedError](err); !ok {
			t.Errorf("got %v, want an *InterruptedError", err)
		}
	})
}

// TestDisconnect checks that after a pause no code is sent over a websocket from before
// it, even if this program has not noticed its end yet.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		answer := func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			k.Stream(m, "stdout", jupytertest.Code(m))
			k.Reply(m, "ok")
			k.Status(m, "idle")
		}
		var websockets atomic.Int32
		s.kernel = func(k *jupytertest.Kernel) {
			if websockets.Add(1) > 1 {
				jupytertest.Answering(answer)(k)
				return
			}
			for m := k.Next(); m != nil; m = k.Next() {
				if jupytertest.Code(m) == "after" {
					t.Error("code of after the pause arrived on a websocket from before it")
					return
				}
				if m.Header.MsgType == "execute_request" {
					answer(k, m)
				}
			}
		}
		ks := s.kernels()
		for _, code := range []string{"before", "after"} {
			if printed, err := run(t.Context(), ks, code, Handler{}); err != nil || printed != code {
				t.Errorf("got %q, %v, want %q", printed, err, code)
			}
			ks.Disconnect()
		}
	})
}
