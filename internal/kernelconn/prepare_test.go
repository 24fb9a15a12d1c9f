package kernelconn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// The environment of the sandbox is set once. The environment of a call is set
// before it and undone after it.
func TestEnvs(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		codes := make(chan string, 10)
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			codes <- jupytertest.Code(m)
			k.Begin(m)
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		ks := s.kernelsOf(Options{Envs: map[string]string{"ALWAYS": "here"}})
		envs := map[string]string{"K": "'\"; import os"}
		for range 2 {
			_, err := ks.Execute(t.Context(), Call{Request: jupyter.ExecuteRequest{Code: "user"}, Envs: envs})
			must.Do(t, err)
		}
		set := replaceEnvs(envs)
		want := []string{completeEnvs(map[string]string{"ALWAYS": "here"}), set, "user", restoreEnvs, set, "user", restoreEnvs}
		var got []string
		for range want {
			got = append(got, <-codes)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A fresh kernel drops its messages on iopub until it has learned of the websocket
// that was opened while it started. No code is sent into that gap.
func TestFreshKernelThatIsNotHeard(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		deaf := 0 // how many requests get no answer on iopub
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			switch {
			case jupytertest.Code(m) == "die":
				deaf = 2
				k.Begin(m)
				k.Status(nil, "restarting")
				return
			case deaf > 0:
				deaf--
			default:
				k.Begin(m)
				k.Stream(m, "stdout", "ran "+jupytertest.Code(m))
				defer k.Status(m, "idle")
			}
			k.Reply(m, "ok")
		})
		ks := s.kernels()
		if _, err := run(t.Context(), ks, "die", Handler{}); !errors.Is(err, ErrDied) {
			t.Fatalf("code that ended its kernel: %v", err)
		}
		printed, err := run(t.Context(), ks, "x", Handler{})
		if err != nil {
			t.Fatalf("the next: %v", err)
		}
		if want := "ran x"; printed != want {
			t.Errorf("the next printed %q, want %q", printed, want)
		}
	})
}

// The code that puts back the variables of one call is interrupted if its time is up: otherwise it
// would hold up whatever runs next.
func TestRestoringEnvsIsGivenUp(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		restoring, interrupted, heeded := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var interrupts atomic.Int32
		s.rest = func(w http.ResponseWriter, _ *http.Request) {
			if interrupts.Add(1) == 2 { // the first is that of the call itself: the time is up
				close(interrupted)
				<-heeded // before it is sent again
			}
			w.WriteHeader(http.StatusNoContent)
		}
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			if jupytertest.Code(m) == restoreEnvs {
				close(restoring)
				<-interrupted
				defer close(heeded)
			}
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		ks := s.kernels()
		background := ks.options.Background
		var works atomic.Int32
		ks.options.Background = func(ctx context.Context, do func(context.Context)) {
			background(ctx, func(ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				if works.Add(1) == 1 { // the others are the interrupts
					go func() { <-restoring; cancel() }()
				}
				do(ctx)
			})
		}
		_, err := ks.Execute(t.Context(), Call{Request: jupyter.ExecuteRequest{Code: "user"}, Envs: map[string]string{"K": "v"}})
		must.Do(t, err)
		_, err = run(t.Context(), ks, "x", Handler{})
		must.Do(t, err)
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		if k.unfinished() != nil || k.inTurn.Load() != 0 {
			t.Errorf("code is left in progress, or %d calls are in turn", k.inTurn.Load())
		}
	})
}

// TestEnvironmentIsAskedFor checks that an unknown environment of a sandbox is requested once a
// kernel needs it, and that variables of the service or of each process are left out.
func TestEnvironmentIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	status := http.StatusOK
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/envs" {
			t.Errorf("%s was asked for", r.URL.Path)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"A":"1","E2B_SANDBOX":"true","PATH":"/bin","MYPATH":"2","e2b_":"3"}`)
	}
	ks := s.kernels()
	if got := ks.environment(t.Context()); len(got) != 0 {
		t.Errorf("a known environment, which is empty: got %v", got)
	}
	ks.options.Envs = nil
	if diff := cmp.Diff(map[string]string{"A": "1", "MYPATH": "2", "e2b_": "3"}, ks.environment(t.Context())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	status = http.StatusNotFound
	if got := ks.environment(t.Context()); got != nil {
		t.Errorf("an unknown environment: got %v, want none", got)
	}
}

// Only the first connection after the end of a kernel has to be proven.
func TestFreshKernelIsProvenOnce(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = jupytertest.Answering(func(*jupytertest.Kernel, *jupyter.Message) {})
		ks := s.kernels()
		for i, unproven := range []bool{false, true, false} {
			if unproven {
				ks.noteEnd(testContext)
			}
			k, err := ks.Open(t.Context(), "", "")
			must.Do(t, err)
			if k.unproven != unproven {
				t.Errorf("connection %d has to be proven: %v, want %v", i, k.unproven, unproven)
			}
			k.close()
			patience.Receive(t, "the end of the connection", k.done)
		}
	})
}
