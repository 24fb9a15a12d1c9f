package sandbox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
)

// interruptible serves a kernel whose code "hang" ends with a traceback when it
// is interrupted, after meanwhile has run.
func interruptible(s *service, meanwhile func()) {
	interrupted := make(chan struct{}, 100)
	s.rest = func(w http.ResponseWriter, _ *http.Request) {
		interrupted <- struct{}{}
		w.WriteHeader(http.StatusNoContent)
	}
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		if jupytertest.Code(m) != "hang" {
			k.Reply(m, "ok")
			k.Status(m, "idle")
			return
		}
		k.Stream(m, "stdout", "so far")
		select {
		case <-interrupted:
		case <-s.t.Context().Done(): // the test is over
			return
		}
		meanwhile()
		where := jupyter.ErrorContent{Name: "KeyboardInterrupt", Traceback: []string{"Cell In[7], line 3", "----> 3 time.sleep(600)"}}
		k.Stream(m, "stdout", ", cleaned up")
		k.Say(m, jupyter.IOPub, "error", where)
		k.Reply(m, "error")
		k.Status(m, "idle")
	})
}

// cancelling cancels a context with the first output.
func cancelling(t *testing.T) (context.Context, *RunCodeParams) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, &RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })}
}

var errOverLimit = errors.New("over the limit")

// overLimit handles an execution whose limit is reached with its first
// output.
func overLimit() kernelconn.Handler {
	reached := make(chan struct{}, 1)
	return kernelconn.Handler{
		Message: func(m *jupyter.Message) error {
			if m.Header.MsgType == "stream" && len(reached) == 0 {
				reached <- struct{}{}
			}
			return nil
		},
		Limit: func(ctx context.Context) (context.Context, context.CancelFunc) {
			bounded, cancel := context.WithCancelCause(ctx)
			go func() {
				select {
				case <-reached:
					cancel(errOverLimit)
				case <-bounded.Done():
				}
			}()
			return bounded, func() { cancel(nil) }
		},
	}
}

// A cancelled call returns the traceback of the place where its code was, if the
// traceback arrives in time.
func TestTracebackOfCodeThatWasGivenUp(t *testing.T) {
	t.Parallel()
	s := newService(t)
	interruptible(s, func() {})
	sb := s.sandbox()
	sb.code.kernels.Timings.CancelGrace = time.Minute // for a slow machine
	ctx, p := cancelling(t)
	execution, err := sb.RunCode(ctx, "hang", p)
	if !errors.Is(err, context.Canceled) || execution == nil || execution.Stdout != "so far, cleaned up" {
		t.Fatalf("%+v, %v", execution, err)
	}
	if e := execution.Error; e == nil || e.Name != "KeyboardInterrupt" || e.Line != 3 {
		t.Errorf("%+v", e)
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// A call whose code does not stop does not wait for the traceback.
func TestCodeThatWasGivenUpAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newService(t)
	returned := make(chan struct{})
	interruptible(s, func() { <-returned })
	sb := s.sandbox()
	ctx, p := cancelling(t)
	execution, err := sb.RunCode(ctx, "hang", p)
	close(returned)
	if !errors.Is(err, context.Canceled) || execution == nil || execution.Error != nil || execution.Stdout != "so far" {
		t.Errorf("%+v, %v", execution, err)
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// Code over its limit is interrupted and followed to its end, unless its caller
// gives it up meanwhile.
func TestCodeOverItsLimit(t *testing.T) {
	t.Parallel()
	hang := jupyter.ExecuteRequest{Code: "hang"}
	t.Run("stops", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		interruptible(s, func() {})
		sb := s.sandbox()
		sb.code.kernels.Timings.LimitGrace = time.Minute
		reply, err := sb.execute(t.Context(), "", hang, overLimit())
		interrupted, ok := errors.AsType[*InterruptedError](err)
		if !ok || !interrupted.Ended || !errors.Is(err, errOverLimit) || reply.Status != "error" {
			t.Errorf("%+v, %v", reply, err)
		}
	})
	t.Run("is given up", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		ctx, cancel := context.WithCancel(t.Context())
		interruptible(s, func() { cancel(); <-ctx.Done(); <-s.t.Context().Done() })
		sb := s.sandbox()
		sb.code.kernels.Timings.LimitGrace = time.Hour
		_, err := sb.execute(ctx, "", hang, overLimit())
		if interrupted, ok := errors.AsType[*InterruptedError](err); !ok || interrupted.Ended {
			t.Error(err)
		}
	})
}

// No code is sent while an interrupt of the code before it is on its way: it
// would hit the wrong code.
func TestInterruptThatIsLate(t *testing.T) {
	t.Parallel()
	s := newService(t)
	interruptible(s, func() {})
	strike, late, struck := s.rest, make(chan struct{}), make(chan struct{})
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		strike(w, r)
		<-late
		close(struck)
	}
	sb := s.sandbox()
	sb.code.kernels.Timings.CancelGrace = time.Minute
	ctx, p := cancelling(t)
	if execution, err := sb.RunCode(ctx, "hang", p); !errors.Is(err, context.Canceled) || execution.Error == nil {
		t.Fatalf("%+v, %v", execution, err)
	}
	// Without the wait the code would have run by then.
	time.AfterFunc(100*time.Millisecond, func() { close(late) })
	for event, err := range sb.StreamCode(t.Context(), "x", nil) {
		must.Do(t, err)
		if status, ok := event.(StatusEvent); ok && status.State == CodeBusy {
			select {
			case <-struck:
			default:
				t.Error("it ran before the interrupt had struck")
			}
		}
	}
}

// Code that a client ends together with its kernel is not merely interrupted.
func TestRestartedByAnotherClient(t *testing.T) {
	t.Parallel()
	interrupt := func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Say(m, jupyter.IOPub, "error", jupyter.ErrorContent{Name: "KeyboardInterrupt"})
		k.Say(m, jupyter.Shell, "execute_reply", map[string]any{"status": "error", "ename": "KeyboardInterrupt"})
		k.Status(m, "idle")
	}
	for name, test := range map[string]struct {
		last func(k *jupytertest.Kernel, m *jupyter.Message)
		want error
		why  string
	}{
		"restarted, said first": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
			interrupt(k, m)
		}, ErrKernelDied, "a client restarted its context"},
		"restarted, said last": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			interrupt(k, m)
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
		}, ErrKernelDied, "a client restarted its context"},
		"removed": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": false})
			interrupt(k, m)
		}, ErrKernelDied, "a client removed its context"},
		"heeding no interrupt": {func(k *jupytertest.Kernel, _ *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
		}, ErrKernelDied, "a client restarted its context"},
		"interrupted": {interrupt, nil, "KeyboardInterrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
				k.Begin(m)
				k.Stream(m, "stdout", "so far")
				test.last(k, m)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			execution, err := s.sandbox().RunCode(ctx, "x", nil)
			if err == nil || !strings.Contains(err.Error(), test.why) {
				t.Errorf("got %v, want an error with %q", err, test.why)
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if failed, ok := errors.AsType[*ExecutionError](err); test.want == nil && (!ok || failed.Name != "KeyboardInterrupt") {
				t.Errorf("got %v, want the exception KeyboardInterrupt", err)
			}
			if execution == nil || execution.Stdout != "so far" {
				t.Errorf("got %+v, want what was printed so far", execution)
			}
		})
	}
}
