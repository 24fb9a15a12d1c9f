package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// An interrupt without effect is followed by a restart, and that by the end of
// the kernel; each step is logged.
func TestStopEscalates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		restart int
		steps   []string
	}{
		"restart": {http.StatusOK, []string{"interrupt", "interrupt", "interrupt", "restart"}},
		"kill":    {http.StatusInternalServerError, []string{"interrupt", "interrupt", "interrupt", "restart", "DELETE"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				var mu sync.Mutex
				var steps []string
				hanging, ran := make(chan *jupytertest.Kernel, 1), make(chan struct{}, 2)
				s.rest = func(w http.ResponseWriter, r *http.Request) {
					step := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
					if r.Method == http.MethodDelete {
						step = r.Method
					}
					mu.Lock()
					steps = append(steps, step)
					mu.Unlock()
					if step == "restart" {
						(<-hanging).Status(nil, "restarting")
						select {
						case <-ran: // too early: it has not been reported yet
						case <-time.After(100 * time.Millisecond):
						}
						w.WriteHeader(test.restart)
						return
					}
					w.WriteHeader(http.StatusNoContent)
				}
				s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
					k.Begin(m)
					if jupytertest.Code(m) == "hang" {
						k.Stream(m, "stdout", "x")
						hanging <- k
						return
					}
					ran <- struct{}{}
					k.Reply(m, "ok")
					k.Status(m, "idle")
				})
				var log strings.Builder
				ks := s.kernelsOf(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				ctx, cancel := context.WithCancel(t.Context())
				_, err := run(ctx, ks, "hang", printing(cancel))
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if _, err := run(t.Context(), ks, "x", Handler{}); !errors.Is(err, ErrRestarted) {
					t.Errorf("the next: %v", err)
				}
				if _, err := run(t.Context(), ks, "x", Handler{}); err != nil {
					t.Errorf("the one after that: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if diff := cmp.Diff(test.steps, steps); diff != "" {
					t.Error(diff)
				}
				for _, step := range []string{"interrupting code", "restarting a kernel"} {
					if !strings.Contains(log.String(), step) {
						t.Errorf("the log does not tell %q: %s", step, log.String())
					}
				}
			})
		})
	}
}

// A call that waits while the one before it is interrupted learns if that ended
// the kernel.
func TestStopThatKills(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		interrupted, waiting := make(chan struct{}, interruptTries), make(chan struct{})
		s.rest = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			interrupted <- struct{}{}
		}
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			if jupytertest.Code(m) == "hang" {
				k.Stream(m, "stdout", "x")
				<-interrupted
				<-waiting
				k.Status(nil, "restarting")
				return
			}
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		ks := s.kernels()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := run(ctx, ks, "hang", printing(cancel))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := run(t.Context(), ks, "x", Handler{Queued: func(int) error { close(waiting); return nil }}); !errors.Is(err, ErrRestarted) {
			t.Errorf("the next: %v", err)
		}
		if _, err := run(t.Context(), ks, "x", Handler{}); err != nil {
			t.Errorf("the one after that: %v", err)
		}
	})
}

// If a kernel is silent, its server is asked about it.
func TestSilence(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]error{"dead": ErrDied, "": ErrDied, "idle": ErrLost, "busy": nil} {
		onClock(t, func(t *testing.T, s *server) {
			asked := make(chan struct{}, 1000)
			s.rest = func(w http.ResponseWriter, r *http.Request) {
				select {
				case asked <- struct{}{}:
				default:
				}
				if state == "" {
					http.NotFound(w, r)
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]string{"execution_state": state})
			}
			s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
				for m := range requests {
					k.Begin(m)
					if state != "busy" {
						continue
					}
					for range 3 {
						<-asked
					}
					k.Reply(m, "ok")
					k.Status(m, "idle")
				}
			})
			ks := s.kernels()
			if _, err := run(t.Context(), ks, "x", Handler{}); !errors.Is(err, want) {
				t.Errorf("%q: %v, want %v", state, err, want)
			}
		})
	}
}

// A connection that ended while nothing ran is no reason to fail.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		var runs atomic.Int32
		s.kernel = func(k *jupytertest.Kernel) {
			if m := k.Next(); m != nil {
				runs.Add(1)
				k.Begin(m)
				k.Reply(m, "ok")
				k.Status(m, "idle")
			}
		}
		ks := s.kernels()
		for i := range 20 {
			if _, err := run(t.Context(), ks, "x", Handler{}); err != nil && !errors.Is(err, ErrLost) {
				t.Errorf("%d: %v", i, err)
			}
			k := ks.Opened("python")
			<-k.Done()
		}
		if runs.Load() != 20 {
			t.Errorf("ran %d times", runs.Load())
		}
	})
}

// printing calls f with the first output of code.
func printing(f func()) Handler {
	return Handler{Message: func(m *jupyter.Message) error {
		if m.Header.MsgType == "stream" {
			f()
		}
		return nil
	}}
}

// The report on cancelled code says that it ran if it was seen to begin, or may have begun unseen
// after a cut. It says that the kernel is starting if the kernel has sent nothing at all.
func TestReportOfInterruptedCode(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	for _, tt := range []struct{ busy, resumed, heard, ran, starting bool }{
		{false, false, false, false, true},
		{false, false, true, false, false},
		{false, true, false, true, false},
		{false, true, true, true, false},
		{true, false, true, true, false},
		{true, true, true, true, false},
	} {
		k := &Kernel{id: testContext}
		k.heard.Store(tt.heard)
		err := k.interrupted(ctx, &execution{busy: tt.busy, resumed: tt.resumed, sent: time.Now().Add(-time.Hour)})
		if err.Ran >= time.Hour != tt.ran || !tt.ran && err.Ran != 0 || err.Starting != tt.starting {
			t.Errorf("%+v: got %+v", tt, err)
		}
		if err.Context != testContext || !errors.Is(err, cause) {
			t.Errorf("%+v: got %+v of another call", tt, err)
		}
	}
}

// A dead kernel's last message gives the reason only if it belongs to the execution.
func TestReasonOfADeath(t *testing.T) {
	t.Parallel()
	message := func(parent, kind string) *jupyter.Message {
		return &jupyter.Message{Header: jupyter.Header{MsgType: kind}, Parent: jupyter.Header{MsgID: parent}, Content: json.RawMessage(`{"evalue":"Context was restarted: out of memory"}`)}
	}
	for name, tt := range map[string]struct {
		messages  []*jupyter.Message
		explained bool
		want      string
	}{
		"an error":          {[]*jupyter.Message{message("mine", "error")}, false, ErrDied.Error() + ": out of memory"},
		"a reply":           {[]*jupyter.Message{message("mine", "status"), message("mine", "execute_reply")}, false, ErrDied.Error() + ": out of memory"},
		"of other code":     {[]*jupyter.Message{message("other", "error"), message("mine", "error")}, false, ErrDied.Error()},
		"after the end":     {[]*jupyter.Message{nil, message("mine", "error")}, false, ErrDied.Error()},
		"it is known":       {[]*jupyter.Message{message("mine", "error")}, true, ErrDied.Error()},
		"nothing more came": {nil, false, ErrDied.Error()},
	} {
		e := &execution{id: "mine", explained: tt.explained, messages: make(chan *jupyter.Message, 2)}
		for _, m := range tt.messages {
			e.messages <- m
		}
		if err := e.withCause(ErrDied); !errors.Is(err, ErrDied) || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
}

// TestSilencesInARow checks that only silences in a row after a cut count, and that the state that
// the server reports is doubted once.
func TestSilencesInARow(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = jupytertest.Answering(func(*jupytertest.Kernel, *jupyter.Message) {})
		state := "busy"
		s.rest = func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]string{"execution_state": state})
		}
		k, err := s.kernels().Open(t.Context(), "", "")
		must.Do(t, err)
		e := new(execution)
		doubt := func(says string, heard bool, silences int, suspected bool, want error) {
			t.Helper()
			state = says
			if err := k.doubt(t.Context(), e, heard); !errors.Is(err, want) || e.silences != silences || e.suspected != suspected {
				t.Errorf("got %v, %d silences, suspected %v; want %v, %d, %v", err, e.silences, e.suspected, want, silences, suspected)
			}
		}
		doubt("busy", false, 0, false, nil)
		e.resumed = true
		doubt("busy", false, 1, false, nil)
		doubt("idle", false, 2, true, nil)
		doubt("busy", false, 3, false, nil)
		doubt("idle", false, 4, true, nil)
		doubt("idle", true, 0, false, nil)
		doubt("idle", false, 1, true, nil)
		doubt("idle", false, 2, true, ErrLost)
		doubt("dead", false, 3, true, ErrDied)
	})
}
