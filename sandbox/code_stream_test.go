package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// eventName names the kind of an event for tests.
func eventName(e CodeEvent) string {
	switch e := e.(type) {
	case OutputEvent:
		return string(e.Stream) + " " + e.Text
	case ResultEvent:
		return "result " + e.Text()
	case DisplayEvent:
		return "display " + e.Text()
	case UpdateEvent:
		return "update " + e.Text()
	case ClearEvent:
		return fmt.Sprint("clear ", e.Wait)
	case ErrorEvent:
		return "error " + e.Err.Name
	case StatusEvent:
		return fmt.Sprint(e.State, " ", e.Position)
	case InputEvent:
		return "input " + e.Prompt
	case EndEvent:
		return "end " + e.Execution.Stdout
	}
	return fmt.Sprintf("%T", e)
}

func TestStreamCode(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Stream(m, "stdout", "out")
		k.Stream(m, "stderr", "err")
		k.Say(m, jupyter.IOPub, "display_data", map[string]any{"data": map[string]any{"text/plain": "a"}, "transient": map[string]any{"display_id": "d"}})
		k.Say(m, jupyter.IOPub, "update_display_data", map[string]any{"data": map[string]any{"text/plain": "b"}, "transient": map[string]any{"display_id": "d"}})
		k.Say(m, jupyter.IOPub, "clear_output", map[string]any{"wait": true})
		k.Say(m, jupyter.Stdin, "input_request", jupyter.InputRequest{Prompt: "name?"})
		if answer := k.Next(); answer == nil || answer.Header.MsgType != "input_reply" {
			t.Errorf("got %+v", answer)
		}
		k.Say(m, jupyter.IOPub, "execute_result", map[string]any{"data": map[string]any{"text/plain": "c"}})
		k.Say(m, jupyter.IOPub, "error", jupyter.ErrorContent{Name: "E", Value: "v"})
		k.Reply(m, "error")
		k.Status(m, "idle")
	})
	var got []string
	var last error
	for event, err := range s.sandbox().StreamCode(t.Context(), "x", &RunCodeParams{Stdin: func(context.Context, string, bool) (string, error) { return "Ada", nil }}) {
		got, last = append(got, eventName(event)), err
	}
	want := []string{"busy 0", "stdout out", "stderr err", "display a", "update b", "clear true", "input name?", "result c", "error E", "idle 0", "end out"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if failed, ok := errors.AsType[*ExecutionError](last); !ok || failed.Name != "E" {
		t.Errorf("%v", last)
	}
}

func TestStreamCodeThatDoesNotStart(t *testing.T) {
	t.Parallel()
	n := 0
	for event, err := range newService(t).sandbox().StreamCode(t.Context(), "x", &RunCodeParams{Context: "a", Language: "b"}) {
		if n++; event != nil || !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%v, %v", event, err)
		}
	}
	if n != 1 {
		t.Errorf("%d pairs", n)
	}
}

// heeding serves executions that end when they are interrupted by request.
func heeding(s *service) (interrupts *atomic.Int32) {
	interrupts = new(atomic.Int32)
	interrupted := make(chan struct{}, 100)
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/interrupt") {
			interrupts.Add(1)
			interrupted <- struct{}{}
		}
		w.WriteHeader(http.StatusNoContent)
	}
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		status := "ok"
		if jupytertest.Code(m) == "hang" {
			k.Stream(m, "stdout", "so far")
			select {
			case <-interrupted:
			case <-s.t.Context().Done(): // the test is over
			}
			status = "error"
		}
		k.Reply(m, status)
		k.Status(m, "idle")
	})
	return interrupts
}

// After a loop is left early or a handler panics, the kernel still works.
func TestLeavingInterrupts(t *testing.T) {
	t.Parallel()
	s := newService(t)
	interrupts := heeding(s)
	sb := s.sandbox()
	until := func(leave func() bool) {
		defer func() { _ = recover() }()
		for event := range sb.StreamCode(t.Context(), "hang", nil) {
			if _, ok := event.(OutputEvent); ok && leave() {
				break
			}
		}
	}
	until(func() bool { return true })
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil || interrupts.Load() != 1 {
		t.Errorf("%d interrupts, %v", interrupts.Load(), err)
	}
	until(func() bool { panic("mine") })
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil || interrupts.Load() != 2 {
		t.Errorf("%d interrupts, %v", interrupts.Load(), err)
	}
}

func TestQueuePosition(t *testing.T) {
	t.Parallel()
	s := newService(t)
	heeding(s)
	sb := s.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		_, _ = sb.RunCode(ctx, "hang", &RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) { close(began); return len(p), nil })})
	})
	<-began
	for want := 1; want <= 3; want++ {
		queued := make(chan CodeEvent, 1)
		calls.Go(func() {
			for event, err := range sb.StreamCode(t.Context(), "x", nil) {
				if err != nil {
					t.Error(err)
				}
				select {
				case queued <- event:
				default:
				}
			}
		})
		if got := <-queued; got != (StatusEvent{CodeQueued, want}) {
			t.Errorf("%+v", got)
		}
	}
	cancel()
	calls.Wait()
}

// TestQueuePositionBehindOthers checks that the server's reports about the queue behind other
// clients are passed on.
func TestQueuePositionBehindOthers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		for _, position := range []int{2, 1} {
			k.Say(m, jupyter.IOPub, "queued", map[string]int{"position": position})
		}
		k.Begin(m)
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	var got []string
	for event := range s.sandbox().StreamCode(t.Context(), "x", nil) {
		got = append(got, eventName(event))
	}
	if diff := cmp.Diff([]string{"queued 2", "queued 1", "busy 0", "idle 0", "end "}, got); diff != "" {
		t.Error(diff)
	}
}

func TestInterruptedError(t *testing.T) {
	t.Parallel()
	s := newService(t)
	heeding(s)
	sb := s.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	ex, err := sb.RunCode(ctx, "hang", &RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })})
	interrupted, ok := errors.AsType[*InterruptedError](err)
	if !ok || !errors.Is(err, context.Canceled) || interrupted.Context != testContext {
		t.Errorf("got %v, want an *InterruptedError of context %s that is context.Canceled", err, testContext)
	}
	if ex == nil || ex.Stdout != "so far" || ex.Timing.Started.IsZero() {
		t.Errorf("got %+v, want what was printed so far and the time of the start", ex)
	}
	// Code that only waited did not run, and does not claim that it did.
	began := make(chan struct{})
	ctx, cancel = context.WithCancel(t.Context())
	waiting, cancelWaiting := context.WithCancel(t.Context())
	defer cancelWaiting()
	var first sync.WaitGroup
	first.Go(func() {
		_, _ = sb.RunCode(ctx, "hang", &RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) { close(began); return len(p), nil })})
	})
	<-began
	for _, err := range sb.StreamCode(waiting, "x", nil) {
		cancelWaiting()
		if _, ok := errors.AsType[*InterruptedError](err); ok || err != nil && (!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "other code of its context")) {
			t.Errorf("what waited: %v", err)
		}
	}
	cancel()
	first.Wait()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The loss of a kernel between calls is reported to the next call.
func TestRestartedBetweenCalls(t *testing.T) {
	t.Parallel()
	s := newService(t)
	restart, hungUp := make(chan struct{}), make(chan struct{}, 2)
	var environments atomic.Int32
	s.kernel = func(k *jupytertest.Kernel) {
		for m := k.Next(); m != nil; m = k.Next() {
			if strings.HasPrefix(jupytertest.Code(m), "exec(") {
				environments.Add(1)
			}
			k.Begin(m)
			k.Reply(m, "ok")
			k.Status(m, "idle")
			if jupytertest.Code(m) == "last" {
				<-restart
				k.Status(nil, "restarting")
			}
		}
		hungUp <- struct{}{}
	}
	sb := s.sandbox(WithEnvs(map[string]string{"A": "b"}))
	if _, err := sb.RunCode(t.Context(), "last", nil); err != nil {
		t.Fatal(err)
	}
	close(restart)
	<-hungUp // the restart was seen
	if ex, err := sb.RunCode(t.Context(), "x", nil); !errors.Is(err, ErrKernelRestarted) || ex != nil {
		t.Errorf("%v", err)
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil {
		t.Errorf("told twice: %v", err)
	}
	if n := environments.Load(); n != 2 {
		t.Errorf("two kernels were given the sandbox's environment %d times", n)
	}
}

// Code that waits for its turn while the context is restarted runs in the fresh
// kernel.
func TestRestartContextWhileCodeWaits(t *testing.T) {
	t.Parallel()
	s := newService(t)
	old := make(chan *jupytertest.Kernel, 1)
	ran, ended := make(chan struct{}), make(chan struct{})
	var restarted atomic.Bool
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		if jupytertest.Code(m) == "first" {
			old <- k
			close(ran)
			if m := k.Next(); m != nil {
				t.Errorf("the old kernel got %q", jupytertest.Code(m))
			}
			return
		}
		if !restarted.Load() {
			t.Errorf("%q came before the restart was over", jupytertest.Code(m))
		}
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `[{"id":%q,"language":"python"}]`, testContext)
			return
		}
		(<-old).Status(nil, "restarting")
		<-ended // the first call
		restarted.Store(true)
		_, _ = io.WriteString(w, "null")
	}
	sb := s.sandbox()
	var calls sync.WaitGroup
	calls.Go(func() {
		if _, err := sb.RunCode(t.Context(), "first", nil); !errors.Is(err, ErrKernelDied) {
			t.Errorf("what ran: %v", err)
		}
		close(ended)
	})
	<-ran
	queued := make(chan struct{})
	calls.Go(func() {
		for e, err := range sb.StreamCode(t.Context(), "second", nil) {
			if status, ok := e.(StatusEvent); ok && status.State == CodeQueued {
				close(queued)
			}
			if err != nil {
				t.Errorf("what waited: %v", err)
			}
		}
	})
	<-queued
	if err := sb.Contexts.Restart(t.Context(), testContext); err != nil {
		t.Error(err)
	}
	calls.Wait()
}

// Servers differ in how much they take in one message.
func TestCodeThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = func(k *jupytertest.Kernel) {
		for m := k.Next(); m != nil; m = k.Next() {
			if jupytertest.Code(m) == "large" {
				_ = k.Socket.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseMessageTooBig, ""), time.Now().Add(time.Second))
				return
			}
			k.Begin(m)
			k.Reply(m, "ok")
			k.Status(m, "idle")
		}
	}
	sb := s.sandbox()
	if ex, err := sb.RunCode(t.Context(), "large", nil); !errors.Is(err, api.ErrInvalidArgument) || errors.Is(err, ErrKernelLost) || ex != nil {
		t.Errorf("%+v, %v", ex, err)
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestKernelDiedSaysWhy checks that the error has the server's reason for the death of a kernel.
func TestKernelDiedSaysWhy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Status(nil, "restarting")
		k.Say(m, jupyter.IOPub, "error", jupyter.ErrorContent{Name: "ContextRestarting", Value: "out of memory: the limit is 512 MiB"})
	})
	if _, err := s.sandbox().RunCode(t.Context(), "x", nil); !errors.Is(err, ErrKernelDied) || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("%v", err)
	}
}

func TestNeedsWebsocket(t *testing.T) {
	t.Parallel()
	s := newService(t) // 8888 is closed
	s.execute = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"queued","position":2}
{"type":"number_of_executions","execution_count":1}
{"type":"end_of_execution"}
`)
	}
	var log lockedBuffer
	c := s.client(WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	sb, err := c.Create(t.Context())
	must.Do(t, err)
	defer sb.Close()
	if err := sb.Contexts.Interrupt(t.Context(), ""); !errors.Is(err, ErrNeedsWebsocket) {
		t.Errorf("interrupt: %v", err)
	}
	if sb.CodeTransport() != CodeTransportHTTP || !strings.Contains(log.String(), "code runs over HTTP") {
		t.Errorf("transport %q, log %s", sb.CodeTransport(), log.String())
	}
	for name, p := range map[string]*RunCodeParams{"silent": {Silent: true}, "without history": {NoHistory: true}} {
		if ex, err := sb.RunCode(t.Context(), "x", p); !errors.Is(err, ErrNeedsWebsocket) || ex != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (runHost{sb}).ContextID(t.Context(), ""); !errors.Is(err, ErrNeedsWebsocket) {
		t.Errorf("a run of an agent: %v", err)
	}
	var got []string
	for event := range sb.StreamCode(t.Context(), "x", nil) {
		got = append(got, eventName(event))
	}
	if diff := cmp.Diff([]string{"queued 2", "busy 0", "idle 0", "end "}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoHistory(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var got atomic.Value
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		var r jupyter.ExecuteRequest
		_ = json.Unmarshal(m.Content, &r)
		got.Store([2]bool{r.Silent, r.StoreHistory})
		k.Begin(m)
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	for p, want := range map[*RunCodeParams][2]bool{{}: {false, true}, {Silent: true}: {true, false}, {NoHistory: true}: {false, false}} {
		if _, err := sb.RunCode(t.Context(), "x", p); err != nil || got.Load() != want {
			t.Errorf("%+v: %v, %v", p, got.Load(), err)
		}
	}
	for name, p := range map[string]*RunCodeParams{"no name": {Envs: map[string]string{"": "x"}}, "=": {Envs: map[string]string{"A=B": "x"}}, "NUL": {Envs: map[string]string{"A": "\x00"}}} {
		if _, err := sb.RunCode(t.Context(), "x", p); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
