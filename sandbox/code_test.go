package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestRunCode(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Status(nil, "starting") // not ours
		k.Begin(m)
		k.Stream(m, "stdout", "one\n")
		k.Stream(m, "stderr", "two\n")
		k.Stream(m, "stdout", "three\n")
		k.Say(m, jupyter.IOPub, "display_data", map[string]any{
			"data":      map[string]any{"text/plain": "<p>", "image/png": "iVBO\nRw==\n", "application/json": []any{1, nil}},
			"transient": map[string]any{"display_id": "d"},
		})
		k.Say(m, jupyter.IOPub, "update_display_data", map[string]any{"data": map[string]any{"text/plain": "new"}, "transient": map[string]any{"display_id": "d"}})
		k.Say(m, jupyter.IOPub, "comm_open", map[string]any{"unknown": true})
		k.Say(m, jupyter.IOPub, "execute_result", map[string]any{"data": map[string]any{"text/plain": "'a'", "x/y": map[string]any{"z": 1}}, "execution_count": 7})
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	var out, order bytes.Buffer
	var told []string
	ex, err := sb.RunCode(t.Context(), "code", &RunCodeParams{
		Stdout: io.MultiWriter(&out, &order), Stderr: &order, OnResult: func(r Result) { told = append(told, r.Text()) },
	})
	must.Do(t, err)
	if out.String() != "one\nthree\n" || order.String() != "one\ntwo\nthree\n" || ex.Stdout != "one\nthree\n" || ex.Stderr != "two\n" {
		t.Errorf("output %q, in order %q, kept %q and %q", &out, &order, ex.Stdout, ex.Stderr)
	}
	if diff := cmp.Diff([]string{"<p>", "new", "a"}, told); diff != "" {
		t.Error(diff)
	}
	if ex.Count != 7 || ex.Text() != "a" || ex.Error != nil {
		t.Errorf("count %d, text %q, error %v, want 7, \"a\" and none", ex.Count, ex.Text(), ex.Error)
	}
	if len(ex.Results) != 2 {
		t.Fatalf("%d results, want 2: %+v", len(ex.Results), ex.Results)
	}
	if first := ex.Results[0]; first.Text() != "new" || first.Main {
		t.Errorf("the first result is %+v, want \"new\", not the main one", first)
	}
	if diff := cmp.Diff([]string{"text/plain", "x/y"}, ex.Results[1].Formats()); diff != "" {
		t.Error(diff)
	}
	if sb.CodeTransport() != CodeTransportWebsocket {
		t.Errorf("transport %q", sb.CodeTransport())
	}
	for name, want := range map[string]string{"E2b-Sandbox-Port": "8888", "X-Access-Token": "envdtoken", "E2b-Traffic-Access-Token": "traffictoken"} {
		if got := s.headers.Get(name); got != want {
			t.Errorf("%s = %q", name, got)
		}
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	r := Result{Data: map[string]json.RawMessage{
		"text/plain": []byte(`"\"x\""`), "image/png": []byte(`"aGk=\n"`), "image/jpeg": []byte(`"%%"`), "application/json": []byte(`[1]`), "text/html": []byte(`7`),
	}}
	if r.Text() != "x" || string(r.JSON()) != "[1]" || r.HTML() != "" || r.Markdown() != "" {
		t.Errorf("%q %q %q", r.Text(), r.JSON(), r.HTML())
	}
	if data := r.PNG(); string(data) != "hi" {
		t.Errorf("PNG %q", data)
	}
	if r.JPEG() != nil {
		t.Error("a JPEG of what is none")
	}
	if r.PDF() != nil {
		t.Error("a PDF of nothing")
	}
	if (*Execution)(nil).Text() != "" {
		t.Error("text of nothing")
	}
}

func TestRunCodeEndsWithBothHalves(t *testing.T) {
	t.Parallel()
	for name, idleFirst := range map[string]bool{"reply, idle": false, "idle, reply": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
				k.Begin(m)
				if idleFirst {
					k.Stream(m, "stdout", "all")
					k.Status(m, "idle")
					k.Reply(m, "ok")
					return
				}
				k.Reply(m, "ok")
				k.Stream(m, "stdout", "all") // output after the reply is output
				k.Status(m, "idle")
			})
			sb := s.sandbox()
			for range 3 {
				if ex, err := sb.RunCode(t.Context(), "x", nil); err != nil || ex.Stdout != "all" {
					t.Errorf("%+v, %v", ex, err)
				}
			}
		})
	}
}

func TestRunCodeException(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Stream(m, "stdout", "before\n")
		e := map[string]any{"ename": "NameError", "evalue": "name 'x' is not defined", "traceback": []string{"\x1b[0;31mNameError\x1b[0m", "Cell In[7], line 3", "\x1b[1;32m----> 3\x1b[0m x"}}
		k.Say(m, jupyter.IOPub, "error", e)
		e["status"] = "error"
		k.Say(m, jupyter.Shell, "execute_reply", e)
		k.Status(m, "idle")
	})
	ex, err := s.sandbox().RunCode(t.Context(), "x", nil)
	want := &ExecutionError{Name: "NameError", Value: "name 'x' is not defined", Traceback: "NameError\nCell In[7], line 3\n----> 3 x", Line: 3}
	failed, ok := errors.AsType[*ExecutionError](err)
	if !ok || ex == nil || ex.Error != failed || ex.Stdout != "before\n" {
		t.Fatalf("%+v, %v", ex, err)
	}
	if diff := cmp.Diff(want, failed); diff != "" {
		t.Error(diff)
	}
	if err.Error() != "NameError: name 'x' is not defined (line 3)" {
		t.Errorf("%v", err)
	}
	if got := (&ExecutionError{Name: "KeyboardInterrupt", Line: 1}).Error(); got != "KeyboardInterrupt (line 1)" {
		t.Errorf("without a message: %q", got)
	}
}

func TestExecutionErrorLine(t *testing.T) {
	t.Parallel()
	for traceback, want := range map[string]int{
		"Cell In[9], line 5\n----> 5 f()\n\nCell In[9], line 2, in f()\n": 2,
		"Cell In[9], line 5\n\nCell In[3], line 1, in earlier()\n":        5,
		"Cell In [2], line 4\n":               4,
		"Input In [1], in <cell line: 3>()\n": 3,
		"  File \"<cell 12>\", line 7, in <module>\n  File \"/usr/lib/python3/x.py\", line 99, in y\n": 7,
		"  Cell In[10], line 2\n    x = = 3\nSyntaxError":                                              2,
		"File <stdin>:8": 8,
		"no line at all": 0, "": 0,
	} {
		if got := newExecutionError("E", "v", traceback).Line; got != want {
			t.Errorf("line %d, want %d: %s", got, want, traceback)
		}
	}
}

func TestTracebackHasNoEscapes(t *testing.T) {
	t.Parallel()
	for traceback, want := range map[string]string{
		"\x1b[0;31mE\x1b[0m: \x1b[38;5;28;01mv\x1b[39;00m": "E: v",
		"\x1b]8;;file:///x.py\x1b\\x.py\x1b]8;;\x07:3":     "x.py:3",
		"\x1b(B\x1b=a\x1b[?25lb\x1b[2Kc":                   "abc",
		"\x1b]0;title\nline":                               "0;title\nline",
		"plain [1;2m text":                                 "plain [1;2m text",
	} {
		if got := newExecutionError("E", "v", traceback).Traceback; got != want {
			t.Errorf("%q gives %q, want %q", traceback, got, want)
		}
	}
}

func TestRunCodeAborted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		aborts int32
		ok     bool
	}{"once": {1, true}, "always": {99, false}} {
		s := newService(t)
		var calls atomic.Int32
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Status(m, "busy")
			if calls.Add(1) <= test.aborts {
				k.Reply(m, "aborted")
			} else {
				k.Say(m, jupyter.IOPub, "execute_input", jupyter.ExecuteInput{})
				k.Reply(m, "ok")
			}
			k.Status(m, "idle")
		})
		_, err := s.sandbox().RunCode(t.Context(), "x", nil)
		if (err == nil) != test.ok || calls.Load() != 2 || err != nil && !errors.Is(err, api.ErrRetryable) {
			t.Errorf("%s: sent %d times, %v", name, calls.Load(), err)
		}
	}
	// An execution that was aborted after it began was interrupted by another
	// client: it must not run again.
	s := newService(t)
	var calls atomic.Int32
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		calls.Add(1)
		k.Begin(m)
		k.Reply(m, "abort")
		k.Status(m, "idle")
	})
	_, err := s.sandbox().RunCode(t.Context(), "x", nil)
	if failed, ok := errors.AsType[*ExecutionError](err); !ok || failed.Name != "ExecutionAborted" || calls.Load() != 1 {
		t.Errorf("sent %d times, %v", calls.Load(), err)
	}
}

func TestRunCodeKernelDies(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"restarting", "dead"} {
		s := newService(t)
		var died atomic.Bool
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			if died.CompareAndSwap(false, true) {
				k.Stream(m, "stdout", "so far")
				k.Status(nil, state)
				if state == "dead" {
					k.Socket.Close()
				}
				return
			}
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		sb := s.sandbox()
		ex, err := sb.RunCode(t.Context(), "x", nil)
		if !errors.Is(err, ErrKernelDied) || ex == nil || ex.Stdout != "so far" {
			t.Errorf("%s: %+v, %v", state, ex, err)
		}
		if state == "dead" {
			<-sb.code.kernels.Opened("python").Done()
		}
		if _, err := sb.RunCode(t.Context(), "x", nil); err != nil {
			t.Errorf("%s, the next: %v", state, err)
		}
	}
}

func TestRunCodeCancelled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	interrupted := make(chan struct{}, 8)
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/kernels/"+testContext+"/interrupt" {
			t.Errorf("%s", r.URL.Path)
		}
		w.WriteHeader(http.StatusNoContent)
		interrupted <- struct{}{}
	}
	var calls atomic.Int32
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		if calls.Add(1) == 1 {
			k.Stream(m, "stdout", "so far")
			<-interrupted
			k.Reply(m, "error")
		} else {
			k.Reply(m, "ok")
		}
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	ex, err := sb.RunCode(ctx, "while True: pass", &RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})})
	if !errors.Is(err, context.Canceled) || ex == nil || ex.Stdout != "so far" {
		t.Errorf("%+v, %v", ex, err)
	}
	// The next call waits for the interrupt and finds the kernel free.
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil || calls.Load() != 2 {
		t.Errorf("%d runs, %v", calls.Load(), err)
	}
}

// Code that is cancelled before the kernel has begun to run it is interrupted when
// it begins, and not before: until then other code runs.
func TestRunCodeCancelledBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := newService(t)
	interrupted, sent, begin := make(chan struct{}, 8), make(chan struct{}), make(chan struct{})
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"execution_state":"busy"}`)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		interrupted <- struct{}{}
	}
	var calls atomic.Int32
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		if calls.Add(1) == 1 {
			close(sent)
			<-begin
			if len(interrupted) > 0 {
				t.Error("interrupted before it began")
			}
			k.Begin(m)
			<-interrupted
			k.Reply(m, "error")
		} else {
			k.Begin(m)
			k.Reply(m, "ok")
		}
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	sb.code.kernels.Timings.InterruptPause = 10 * time.Second // the interrupt is sent after 0.2 seconds; the kernel heeds it within 4
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-sent; cancel() }()
	_, err := sb.RunCode(ctx, "while True: pass", nil)
	if failed, ok := errors.AsType[*InterruptedError](err); !ok || !errors.Is(err, context.Canceled) || failed.Ran != 0 {
		t.Error(err)
	} else if failed.Starting != sb.created || strings.Contains(err.Error(), "the kernel was still starting") != sb.created {
		t.Errorf("a kernel that has sent nothing: %v", err)
	}
	next := make(chan error, 1)
	go func() { _, err := sb.RunCode(t.Context(), "x", nil); next <- err }()
	close(begin)
	if err := <-next; err != nil || calls.Load() != 2 {
		t.Errorf("the next: %d runs, %v", calls.Load(), err)
	}
}

func TestRunCodeInterruptByMessageWhereThereIsNoRequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.rest = http.NotFound
	interrupted := make(chan struct{})
	s.kernel = func(k *jupytertest.Kernel) {
		m := k.Next()
		k.Begin(m)
		k.Stream(m, "stdout", "x")
		if i := k.Next(); i == nil || i.Header.MsgType != "interrupt_request" || i.Channel != jupyter.Control {
			t.Errorf("got %+v", i)
		}
		close(interrupted)
		k.Reply(m, "error")
		k.Status(m, "idle")
		k.Next()
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.sandbox().RunCode(ctx, "x", &RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-interrupted
}

func TestRunCodeStdin(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var got atomic.Value
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		var r jupyter.ExecuteRequest
		_ = json.Unmarshal(m.Content, &r)
		k.Begin(m)
		if r.AllowStdin {
			k.Say(m, jupyter.Stdin, "input_request", jupyter.InputRequest{Prompt: "name? ", Password: true})
			answer := k.Next()
			if answer == nil { // interrupted
				return
			}
			if answer.Header.MsgType != "input_reply" || answer.Channel != jupyter.Stdin {
				t.Errorf("got %+v", answer)
			}
			var reply jupyter.InputReply
			_ = json.Unmarshal(answer.Content, &reply)
			got.Store(reply.Value)
		} else {
			got.Store("not allowed")
		}
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	for _, test := range []struct {
		stdin func(context.Context, string, bool) (string, error)
		want  string
	}{
		{func(_ context.Context, prompt string, password bool) (string, error) {
			return fmt.Sprint(prompt, password), nil
		}, "name? true"},
		{func(context.Context, string, bool) (string, error) { return "", io.EOF }, "\x04"},
		{nil, "not allowed"},
	} {
		if _, err := sb.RunCode(t.Context(), "input()", &RunCodeParams{Stdin: test.stdin}); err != nil || got.Load() != test.want {
			t.Errorf("%q, %v; want %q", got.Load(), err, test.want)
		}
	}
}

func TestRunCodeStdinThatFailsInterrupts(t *testing.T) {
	t.Parallel()
	s := newService(t)
	interrupted, release := make(chan struct{}, 8), make(chan struct{})
	s.rest = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); interrupted <- struct{}{} }
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Say(m, jupyter.Stdin, "input_request", jupyter.InputRequest{})
		select {
		case <-interrupted:
		case <-release:
		}
		k.Reply(m, "error")
		k.Status(m, "idle")
	})
	mine := errors.New("mine")
	sb := s.sandbox()
	if _, err := sb.RunCode(t.Context(), "input()", &RunCodeParams{Stdin: func(context.Context, string, bool) (string, error) { return "", mine }}); !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	// A handler that ignores its context does not block the call.
	ctx, cancel := context.WithCancel(t.Context())
	_, err := sb.RunCode(ctx, "input()", &RunCodeParams{Stdin: func(context.Context, string, bool) (string, error) {
		cancel()
		<-release
		return "", nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(release)
}

func TestRunCodeTakesTurns(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var running atomic.Int32
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		if running.Add(1) != 1 {
			t.Error("two executions at once")
		}
		k.Begin(m)
		k.Stream(m, "stdout", jupytertest.Code(m))
		running.Add(-1)
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			want := fmt.Sprint(i)
			if ex, err := sb.RunCode(t.Context(), want, nil); err != nil || ex.Stdout != want {
				t.Errorf("%d: %+v, %v", i, ex, err)
			}
		})
	}
	calls.Wait()
}

func TestRunCodeOverHTTP(t *testing.T) {
	t.Parallel()
	s := newService(t) // 8888 is closed
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		if diff := cmp.Diff(map[string]any{"code": "x", "env_vars": map[string]any{"A": "b"}}, body); diff != "" {
			t.Error(diff)
		}
		_, _ = io.WriteString(w, `{"type":"number_of_executions","execution_count":4}
{"type":"stdout","text":"out\n","timestamp":"2026-01-01T00:00:00+00:00"}
{"type":"keepalive"}
{"type":"unheard of","text":7}
{"type":"result","text":"[1]","json":[1],"html":null,"extra":{"x/y":2},"is_main_result":true}
{"type":"error","name":"E","value":"v","traceback":"first"}
{"type":"error","name":"ValueError","value":"v","traceback":"Cell In[4], line 2"}
{"type":"end_of_execution"}
`)
	}
	sb := s.sandbox()
	ex, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Envs: map[string]string{"A": "b"}})
	if failed, ok := errors.AsType[*ExecutionError](err); !ok || failed.Name != "ValueError" || failed.Line != 2 {
		t.Errorf("%v", err)
	}
	want := map[string]json.RawMessage{"text/plain": []byte(`"[1]"`), "application/json": []byte(`[1]`), "x/y": []byte(`2`)}
	if diff := cmp.Diff(want, ex.Results[0].Data); diff != "" || ex.Text() != "[1]" || ex.Count != 4 || ex.Stdout != "out\n" {
		t.Errorf("%+v %s", ex, diff)
	}
	if sb.CodeTransport() != CodeTransportHTTP {
		t.Errorf("transport %q", sb.CodeTransport())
	}
}

func TestRunCodeOverHTTPFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		want   error
	}{
		"cut":       {`{"type":"stdout","text":"x"}` + "\n", ErrKernelLost},
		"restarted": {`{"type":"error","name":"ContextRestarting","value":"Context was restarted","traceback":""}` + "\n", ErrKernelDied},
		"dropped":   {`{"type":"error","name":"WebSocketError","value":"The connections was lost","traceback":""}` + "\n", ErrKernelLost},
		"garbage":   {"<html>\n", nil},
	} {
		s := newService(t)
		s.execute = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, test.answer) }
		if ex, err := s.sandbox(WithCodeTransport(CodeTransportHTTP)).RunCode(t.Context(), "x", nil); err == nil || test.want != nil && !errors.Is(err, test.want) || ex == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Other code of the context runs until this call is cancelled.
	waiting := newService(t)
	ctx, cancel := context.WithCancel(t.Context())
	waiting.execute = func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	}
	_, err := waiting.sandbox(WithCodeTransport(CodeTransportHTTP)).RunCode(ctx, "x", nil)
	if failed, ok := errors.AsType[*InterruptedError](err); ok && failed.Ran != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("given up while it waited: %v", err)
	}
	s := newService(t)
	s.execute = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Context x not found", 404) }
	if ex, err := s.sandbox(WithCodeTransport(CodeTransportHTTP)).RunCode(t.Context(), "x", nil); !errors.Is(err, api.ErrNotFound) || ex != nil {
		t.Errorf("%v", err)
	}
	if _, err := newService(t).sandbox(WithCodeTransport(CodeTransportWebsocket)).RunCode(t.Context(), "x", nil); err == nil || !strings.Contains(err.Error(), "port 8888") {
		t.Errorf("no fallback was asked for: %v", err)
	}
}

// Wherever the answer is cut, the complete lines are kept, and the error says
// that it was cut.
func TestRunCodeOverHTTPCutAnywhere(t *testing.T) {
	t.Parallel()
	const answer = `{"type":"number_of_executions","execution_count":1}
{"type":"stdout","text":"<0>"}
{"type":"keepalive"}
{"type":"stdout","text":"<1>"}
{"type":"result","text":"42","extra":{},"is_main_result":true}
{"type":"end_of_execution"}
`
	for name, end := range map[string]func(http.ResponseWriter){
		"in the middle": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"as if whole":   func(http.ResponseWriter) {},
	} {
		s := newService(t)
		var size atomic.Int64
		s.execute = func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer[:size.Load()])
			_ = http.NewResponseController(w).Flush()
			end(w)
		}
		sb := s.sandbox(WithCodeTransport(CodeTransportHTTP))
		sb.code.kernels.Timings.InterruptOvertake = 0
		for n := range len(answer) - 1 { // the last byte ends a line that is complete
			size.Store(int64(n))
			ex, err := sb.RunCode(t.Context(), "x", nil)
			whole := answer[:strings.LastIndexByte(answer[:n+1], '\n')+1]
			if !errors.Is(err, ErrKernelLost) || ex == nil {
				t.Fatalf("%s, cut at %d: %v", name, n, err)
			}
			if got := strings.Count(ex.Stdout, "<"); got != strings.Count(whole, "<") || (ex.Text() == "42") != strings.Contains(whole, "42") {
				t.Errorf("%s, cut at %d: %+v", name, n, ex)
			}
		}
	}
}

// Only a port without a kernel server decides for the other transport, not one that has
// lost its kernels.
func TestTransportWithoutKernels(t *testing.T) {
	t.Parallel()
	s := newService(t)
	made := 0
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "[]")
			return
		}
		made++
		fmt.Fprintf(w, `{"id":"python-%d","language":"python"}`, made)
	}
	s.socket = http.NotFound
	s.rest = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }
	sb := s.sandbox()
	if _, err := sb.RunCode(t.Context(), "x", nil); !errors.Is(err, api.ErrRetryable) || sb.CodeTransport() != CodeTransportAuto {
		t.Errorf("%v, over %q", err, sb.CodeTransport())
	}
	s.rest = http.NotFound
	s.execute = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil || sb.CodeTransport() != CodeTransportHTTP {
		t.Errorf("%v, over %q", err, sb.CodeTransport())
	}
}

// An end of file that a writer reports is not the end of the execution.
func TestRunCodeOverHTTPWriterFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.execute = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"stdout","text":"x"}`+"\n"+`{"type":"end_of_execution"}`+"\n")
	}
	sb := s.sandbox(WithCodeTransport(CodeTransportHTTP))
	_, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Stdout: writerFunc(func([]byte) (int, error) { return 0, io.EOF })})
	if !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

func TestRunCodeContexts(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var connections atomic.Int32
	answer := jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) { k.Begin(m); k.Reply(m, "ok"); k.Status(m, "idle") })
	s.kernel = func(k *jupytertest.Kernel) { connections.Add(1); answer(k) }
	sb := s.sandbox()
	for _, p := range []*RunCodeParams{nil, {Context: testContext}, {Language: "python"}, {Language: "bash"}, {Context: "b0b"}} {
		if _, err := sb.RunCode(t.Context(), "x", p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections to two contexts", n)
	}
	if _, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Context: "../x"}); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Context: "b0b", Language: "bash"}); err == nil {
		t.Error("context and language")
	}
	for code, p := range map[string]*RunCodeParams{"'\xff'": nil, "x": {Envs: map[string]string{"A": "\xff"}}, "y": {Envs: map[string]string{"A=B": ""}}} {
		if _, err := sb.RunCode(t.Context(), code, p); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%q, %+v: %v", code, p, err)
		}
	}
	if _, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Language: "cobol"}); err == nil {
		t.Error("a language that is not there")
	}
}

// In whatever way a language is written, its default context is the same.
func TestLanguageNames(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var connections atomic.Int32
	answer := jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) { k.Begin(m); k.Reply(m, "ok"); k.Status(m, "idle") })
	s.kernel = func(k *jupytertest.Kernel) { connections.Add(1); answer(k) }
	sb := s.sandbox()
	for _, language := range []string{"bash", "Bash", " BASH\n", "python", "Python", "", " "} {
		if _, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Language: language}); err != nil {
			t.Errorf("%q: %v", language, err)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections to two contexts", n)
	}
	for short, long := range map[string]string{"JS": "javascript", "ts": "typescript"} {
		if got := normalLanguage(short); got != long {
			t.Errorf("%s is %s", short, got)
		}
	}
}

// A context that was created on request does not become the default of its
// language.
func TestCreatedContextIsNoDefault(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) { k.Begin(m); k.Reply(m, "ok"); k.Status(m, "idle") })
	var made []string
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			made = append(made, fmt.Sprintf(`{"id":"r%d","language":"r"}`, len(made)))
			_, _ = io.WriteString(w, made[len(made)-1])
			return
		}
		_, _ = io.WriteString(w, "["+strings.Join(made, ",")+"]")
	}
	sb := s.sandbox()
	beside, err := sb.Contexts.Create(t.Context(), &CodeContextParams{Language: "R"})
	must.Do(t, err)
	for range 2 {
		_, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Language: "r"})
		must.Do(t, err)
	}
	if len(made) != 2 {
		t.Errorf("%s was asked for, and there are %q", beside.ID, made)
	}
}

// If the language is not Python, the interpreter sets the variables of the
// sandbox and of a call, in the context where the earlier code ran.
// TestEnvsOfPython checks that the environment variables of a call reach the kernel of Python before the code.
func TestEnvsOfPython(t *testing.T) {
	t.Parallel()
	s := newService(t)
	envs := base64.StdEncoding.EncodeToString([]byte(`{"NAME":"value"}`))
	var before string
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		code := jupytertest.Code(m)
		_, rest, _ := strings.Cut(before, "b64decode('")
		text, _, _ := strings.Cut(rest, "'")
		if program, err := base64.StdEncoding.DecodeString(text); code == "x" && (err != nil || !strings.Contains(string(program), envs)) {
			t.Errorf("code began after %q, want the variable in it", program)
		}
		before = code
		k.Begin(m)
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	_, err := s.sandbox().RunCode(t.Context(), "x", &RunCodeParams{Envs: map[string]string{"NAME": "value"}})
	must.Do(t, err)
}

func TestEnvsOfOtherLanguages(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var sent []any
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		var body any
		_ = json.NewDecoder(r.Body).Decode(&body)
		sent = append(sent, body)
		_, _ = io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
	}
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		sent = append(sent, jupytertest.Code(m))
		k.Begin(m)
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	sb := s.sandbox(WithEnvs(map[string]string{"A": "b"}))
	for _, p := range []*RunCodeParams{{Language: "bash"}, {Context: "b0b"}, {Language: "bash", Envs: map[string]string{"C": "d"}}} {
		if _, err := sb.RunCode(t.Context(), "x", p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	want := []any{
		map[string]any{"code": "", "context_id": "b0b"}, "x", "x",
		map[string]any{"code": "x", "context_id": "b0b", "env_vars": map[string]any{"C": "d"}},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}

func TestExecute(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Say(m, jupyter.Shell, "execute_reply", map[string]any{"status": "ok", "user_expressions": map[string]any{"v": map[string]any{"status": "ok", "data": map[string]any{"text/plain": "1"}}}})
		k.Status(m, "idle")
	})
	var kinds []string
	reply, err := s.sandbox().execute(t.Context(), "", jupyter.ExecuteRequest{Code: "x", Silent: true, UserExpressions: map[string]string{"v": "x"}}, kernelconn.Handler{
		Message: func(m *jupyter.Message) error { kinds = append(kinds, m.Header.MsgType); return nil },
	})
	if err != nil || reply.Status != "ok" || string(reply.UserExpressions["v"].Data["text/plain"]) != `"1"` {
		t.Errorf("%+v, %v", reply, err)
	}
	if diff := cmp.Diff([]string{"status", "execute_input", "status"}, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestRunCodeMuchOutput(t *testing.T) {
	t.Parallel()
	s := newService(t)
	chunk := strings.Repeat("0123456789abcdef", 4096)
	const chunks = 256 // 16 MiB
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		for range chunks {
			k.Stream(m, "stdout", chunk)
		}
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	var n int64
	ex, err := s.sandbox().RunCode(t.Context(), "x", &RunCodeParams{MaxOutputBytes: 1024, Stdout: writerFunc(func(p []byte) (int, error) { n += int64(len(p)); return len(p), nil })})
	if err != nil || n != chunks*int64(len(chunk)) || ex.StdoutDropped != n-1024 || len(ex.Stdout) > 1100 {
		t.Errorf("%d bytes came, %d dropped, %d kept, %v", n, ex.StdoutDropped, len(ex.Stdout), err)
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"type":"result","text":"[1]","json":[1],"extra":{"x/y":2},"is_main_result":true}`))
	f.Add([]byte(`{"type":"stdout","text":"x"}`))
	f.Add([]byte(`{"type":"error","name":"N","value":"v","traceback":"Cell In[1], line 99999999999999999999"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c := newCollector(&RunCodeParams{})
		if err := c.line(line); err == nil {
			for _, r := range c.finished().Results {
				_ = r.PNG()
				_ = r.Text()
			}
		}
	})
}
