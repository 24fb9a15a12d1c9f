package agent

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

//go:embed testdata/kernel.py
var testKernel string

// pythonHost is a real Python that answers requests as a kernel does: one with
// IPython, or one with only the standard library.
type pythonHost struct {
	engine string
	temp   string

	mu       sync.Mutex
	stop     func()
	in       io.Writer
	out      *bufio.Reader
	executed int   // number of requests
	sent     int64 // bytes of requests and uploads
	failOpen error
	onSend   func(jupyter.ExecuteRequest)
}

func newPythonHost(t testing.TB, engine string) *pythonHost {
	t.Helper()
	h := &pythonHost{engine: engine, temp: t.TempDir()}
	h.start(t)
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *pythonHost) start(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 on this machine: runs are not tested against Python")
	}
	f, err := forkers[h.engine]()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the %s engine does not start (%v), which CI needs: put the Python of e2bctl local setup first in PATH", h.engine, err)
		}
		t.Skipf("python3 has no %s engine: runs are not tested with it", h.engine)
	}
	h.in, h.out, h.stop, err = f.start(h.temp)
	must.Do(t, err)
	if err := awaitReady(h.out); err != nil {
		h.stop()
		t.Fatal(err)
	}
}

// restart replaces the Python, as when a kernel dies.
func (h *pythonHost) restart(t testing.TB) {
	h.stop()
	h.start(t)
}

// discarding describes the sandbox of runs that have none.
var discarding = about{logger: slog.New(slog.DiscardHandler)}

func (h *pythonHost) about() about { return discarding }

func (h *pythonHost) execute(ctx context.Context, _ string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	if h.onSend != nil {
		h.onSend(request)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return jupyter.ExecuteReply{}, context.Cause(ctx)
	}
	request.AllowStdin = handler.Input != nil
	line, err := json.Marshal(request)
	if err != nil {
		return jupyter.ExecuteReply{}, err
	}
	h.executed++
	h.sent += int64(len(line))
	if _, err := h.in.Write(append(line, '\n')); err != nil {
		return jupyter.ExecuteReply{}, sandbox.ErrKernelDied
	}
	for {
		line, err := h.out.ReadBytes('\n')
		if err != nil {
			return jupyter.ExecuteReply{}, sandbox.ErrKernelDied
		}
		var m struct {
			Type    string
			Content json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return jupyter.ExecuteReply{}, err
		}
		if m.Type == "execute_reply" {
			var reply jupyter.ExecuteReply
			return reply, json.Unmarshal(m.Content, &reply)
		}
		if m.Type == "input_request" {
			if err := h.answer(ctx, m.Content, handler); err != nil {
				return jupyter.ExecuteReply{}, err
			}
			continue
		}
		if handler.Message != nil {
			if err := handler.Message(&jupyter.Message{Header: jupyter.Header{MsgType: m.Type}, Content: m.Content}); err != nil {
				return jupyter.ExecuteReply{}, err
			}
		}
	}
}

// answer answers a request for input.
func (h *pythonHost) answer(ctx context.Context, content []byte, handler kernelconn.Handler) error {
	var request jupyter.InputRequest
	if err := json.Unmarshal(content, &request); err != nil {
		return err
	}
	value, err := handler.Input(ctx, request.Prompt, false)
	if err != nil {
		return err
	}
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = h.in.Write(append(line, '\n'))
	return err
}

func (h *pythonHost) upload(_ context.Context, path string, r io.Reader) error {
	if !strings.HasPrefix(path, h.temp+"/e2bctl-") {
		return fmt.Errorf("upload to %s", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, r)
	h.sent += n
	return err
}

func (h *pythonHost) open(_ context.Context, path string) (io.ReadCloser, error) {
	if h.failOpen != nil {
		return nil, h.failOpen
	}
	return os.Open(path)
}

// leftovers returns the files in the kernel's directory.
func (h *pythonHost) leftovers(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.temp, "e2bctl-*", "*"))
	must.Do(t, err)
	return files
}

func (h *pythonHost) begin(t testing.TB, rs *runs, p Params) *Run {
	t.Helper()
	r, err := rs.begin(t.Context(), h, "kernel", p)
	must.Do(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func mustExec(t testing.TB, r *Run, code string) *Step {
	t.Helper()
	step, err := r.Exec(t.Context(), code)
	must.Do(t, err)
	if step.Error != nil {
		t.Fatalf("got %v, want no Python error", step.Error.Traceback)
	}
	return step
}

func set(t testing.TB, st *state.State, name string, v any) {
	t.Helper()
	must.Do(t, st.Set(name, v))
}

// eachEngine runs a test with both kinds of kernel.
func eachEngine(t *testing.T, test func(t *testing.T, h *pythonHost)) {
	t.Parallel()
	for _, engine := range []string{"plain", "ipython"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, newPythonHost(t, engine))
		})
	}
}

func TestRunThereAndBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		set(t, st, "numbers", []int{1, 2, 3})
		set(t, st, "config", map[string]any{"scale": 2.0})
		set(t, st, "label", "x")
		r := h.begin(t, &rs, Params{State: st})
		step := mustExec(t, r, "print('hi')\ntotal = sum(numbers) * config['scale']\nnumbers.append(2**70)\ndel label\nimport os\ndef f(): pass\n_private = 1\nid = 3\ntotal")
		var total float64
		if err := step.Value.Decode(&total); err != nil || total != 12 {
			t.Errorf("total = %v, %v, want 12 and no error", total, err)
		}
		if step.Stdout != "hi\n" || step.N != 1 {
			t.Errorf("got step %d that printed %q, want step 1 and %q", step.N, step.Stdout, "hi\n")
		}
		must.Do(t, r.Pull(t.Context(), st))
		if diff := cmp.Diff([]string{"config", "numbers", "total"}, st.Names()); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		var numbers []any
		if err := st.Get("numbers", &numbers); err != nil || len(numbers) != 4 {
			t.Errorf("numbers = %v, %v, want 4 of them and no error", numbers, err)
		}
		if err := st.Get("total", &total); err != nil || total != 12 {
			t.Errorf("total = %v, %v, want 12 and no error", total, err)
		}
		if files := h.leftovers(t); files != nil {
			t.Errorf("left behind: %v, want none", files)
		}
	})
}

func TestStepValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{})
		for _, test := range []struct {
			code string
			want any
		}{
			{"'5'", "5"},
			{"[1, 2.5, None]", []any{int64(1), 2.5, nil}},
			{"1.0", 1.0},
			{"x = 5", nil}, // not the value of the code before
			{"None", nil},
			{"x", int64(5)},
			{"1;", nil},
			{"float('inf')", math.Inf(1)},
			{"b'a'", []byte("a")},
			{"'\\ud800'", "\xed\xa0\x80"},
			{"'a' * (2 << 20)", state.Opaque{Type: "builtins.str", Repr: "str of 2097152", Reason: "it has more bytes than may be sent"}},
		} {
			step := mustExec(t, r, test.code)
			var got any
			if err := step.Value.Decode(&got); err != nil {
				t.Errorf("%s: %v", test.code, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.code, diff)
			}
		}
	})
}

func TestExceptionIsData(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{})
		step, err := r.Exec(t.Context(), "print('before')\n1/0")
		if err != nil || step.Error == nil {
			t.Fatalf("got %+v, %v, want a Python error and no error", step, err)
		}
		if step.Error.Name != "ZeroDivisionError" || step.Stdout != "before\n" {
			t.Fatalf("got %s after %q, want ZeroDivisionError after %q", step.Error.Name, step.Stdout, "before\n")
		}
		if step.Value.Kind() != state.KindNone {
			t.Errorf("value %s, want state.KindNone", step.Value.Kind())
		}
	})
}

// TestOnlyChangesAreSent checks that values that the kernel has are not sent again, that
// values that were Set since are sent, and that changes by code stay.
func TestOnlyChangesAreSent(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		set(t, st, "large", make([]byte, 1<<20))
		set(t, st, "small", 1)
		r := h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "small = 2")
		r.Close()
		before, requests := h.sent, h.executed
		r = h.begin(t, &rs, Params{State: st})
		if n := h.sent - before; n > 1024 || h.executed-requests != 1 {
			t.Errorf("the second Begin sent %d bytes in %d requests, want at most 1024 in one", n, h.executed-requests)
		}
		if step := mustExec(t, r, "small, len(large)"); string(step.Value.Bytes()) != `{"v":1,"value":{"$":"tuple","items":[2,1048576]}}` {
			t.Errorf("got %s, want %s", step.Value.Bytes(), `{"v":1,"value":{"$":"tuple","items":[2,1048576]}}`)
		}
		r.Close()
		set(t, st, "small", 3)
		set(t, st, "large", make([]byte, 1<<20)) // the same content
		before = h.sent
		r = h.begin(t, &rs, Params{State: st})
		if n := h.sent - before; n > 1024 {
			t.Errorf("%d bytes for one small change, want at most 1024", n)
		}
		if step := mustExec(t, r, "small"); string(step.Value.Bytes()) != `{"v":1,"value":3}` {
			t.Errorf("got %s, want %s", step.Value.Bytes(), `{"v":1,"value":3}`)
		}
		r.Close()
		h.restart(t)
		r = h.begin(t, &rs, Params{State: st})
		if step := mustExec(t, r, "small, len(large)"); string(step.Value.Bytes()) != `{"v":1,"value":{"$":"tuple","items":[3,1048576]}}` {
			t.Errorf("after a restart: %s, want %s", step.Value.Bytes(), `{"v":1,"value":{"$":"tuple","items":[3,1048576]}}`)
		}
	})
}

// TestTwoHandlesOneKernel checks that another handle's run in between does not leave this
// handle with wrong knowledge.
func TestTwoHandlesOneKernel(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var one, two runs
		st := state.New()
		set(t, st, "x", 1)
		h.begin(t, &one, Params{State: st}).Close()
		other := state.New()
		set(t, other, "x", 2)
		h.begin(t, &two, Params{State: other}).Close()
		r := h.begin(t, &one, Params{State: st})
		if step := mustExec(t, r, "x"); string(step.Value.Bytes()) != `{"v":1,"value":1}` {
			t.Errorf("x = %s, want %s", step.Value.Bytes(), `{"v":1,"value":1}`)
		}
	})
}

func TestPullOnlyChanges(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		for i := range 200 {
			set(t, st, fmt.Sprintf("v%d", i), []any{i, "text", map[string]any{"k": float64(i)}})
		}
		set(t, st, "nested", map[string]any{"deep": []any{map[string]any{"x": 1}}})
		r := h.begin(t, &rs, Params{State: st})
		set(t, st, "v1", "set since") // the code does not change it: it stays
		mustExec(t, r, "nested['deep'][0]['x'] = 2")
		must.Do(t, r.Pull(t.Context(), st))
		var v1 string
		if err := st.Get("v1", &v1); err != nil || v1 != "set since" {
			t.Errorf("v1 = %q, %v, want %q and no error", v1, err, "set since")
		}
		if v, _ := st.Value("nested"); string(v.Bytes()) != `{"v":1,"value":{"deep":[{"x":2}]}}` {
			t.Errorf("nested = %s, want %s", v.Bytes(), `{"v":1,"value":{"deep":[{"x":2}]}}`)
		}
		// Once pulled, it is known: a second pull does not bring it back over a Set.
		set(t, st, "nested", nil)
		must.Do(t, r.Pull(t.Context(), st))
		if v, _ := st.Value("nested"); v.Kind() != state.KindNone {
			t.Errorf("nested = %s, want no value", v.Bytes())
		}
	})
}

// TestPullFailsAndIsRepeated checks that a pull that fails halfway is repeated in full.
func TestPullFailsAndIsRepeated(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	r := h.begin(t, &rs, Params{State: st})
	mustExec(t, r, "big = 'x' * 1000000")
	h.failOpen = errors.New("injected")
	if err := r.Pull(t.Context(), st); !errors.Is(err, h.failOpen) || len(st.Names()) != 0 {
		t.Fatalf("%v, names %v, want %v and no names", err, st.Names(), h.failOpen)
	}
	h.failOpen = nil
	must.Do(t, r.Pull(t.Context(), st))
	var got string
	if err := st.Get("big", &got); err != nil || len(got) != 1000000 {
		t.Errorf("got %d, %v, want 1000000 and no error", len(got), err)
	}
	if files := h.leftovers(t); files != nil {
		t.Errorf("left behind: %v, want none", files)
	}
}

func TestOpaqueVariables(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		set(t, st, "x", 1)
		r := h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "x = object()\ny = object()\nz = []\nz.append(z)")
		must.Do(t, r.Pull(t.Context(), st))
		if diff := cmp.Diff([]string{"x", "z"}, st.Names()); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		var n int
		if err := st.Get("x", &n); err == nil || !strings.Contains(err.Error(), "builtins.object") {
			t.Errorf("Get: %v, want an error with %q", err, "builtins.object")
		}
		r.Close()
		// This kernel has it, so nothing is sent. Another kernel does not have it.
		h.begin(t, &rs, Params{State: st}).Close()
		h.restart(t)
		if _, err := rs.begin(t.Context(), h, "kernel", Params{State: st}); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("Begin in another kernel: %v, want an error with %q", err, `"x"`)
		}
		st.Delete("x")
		st.Delete("z")
		h.begin(t, &rs, Params{State: st}) // the failed run freed the context
	})
}

// TestPullPastAProxy checks that an object that fails when it is examined, as proxies do,
// does not affect the others.
func TestPullPastAProxy(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		r := h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "class Proxy:\n    __class__ = property(lambda self: 1 / 0)\nproxy = Proxy()\nx = 1")
		must.Do(t, r.Pull(t.Context(), st))
		if diff := cmp.Diff([]string{"x"}, st.Names()); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	})
}

func TestGet(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{})
		mustExec(t, r, "großes = list(map(float, range(100000)))\nlist = 5\nf = len")
		v, err := r.Get(t.Context(), "großes")
		must.Do(t, err)
		var floats []float64
		if err := v.Decode(&floats); err != nil || len(floats) != 100000 || floats[99999] != 99999 {
			t.Errorf("got %d, %v, want the 100000 that were set and no error", len(floats), err)
		}
		if v, err := r.Get(t.Context(), "list"); err != nil || v.Kind() != state.KindInt {
			t.Errorf("list: %v, %v, want state.KindInt and no error", v.Kind(), err)
		}
		if v, err := r.Get(t.Context(), "f"); err != nil || v.Kind() != state.KindOpaque {
			t.Errorf("f: %v, %v, want state.KindOpaque and no error", v.Kind(), err)
		}
		for _, name := range []string{"nothing", "a\"); import os #", "", "\n"} {
			if _, err := r.Get(t.Context(), name); !errors.Is(err, state.ErrNotFound) {
				t.Errorf("%q: got %v, want state.ErrNotFound", name, err)
			}
		}
		if files := h.leftovers(t); files != nil {
			t.Errorf("left behind: %v, want none", files)
		}
	})
}

// TestNamespaceIsClean checks that nothing of this package is in the user's namespace.
func TestNamespaceIsClean(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		set(t, st, "mine", 1)
		r := h.begin(t, &rs, Params{State: st})
		step := mustExec(t, r, "sorted(n for n in globals() if not n.startswith('_') and n not in ('In', 'Out', 'exit', 'quit', 'get_ipython', 'open'))")
		var names []string
		must.Do(t, step.Value.Decode(&names))
		if diff := cmp.Diff([]string{"final_answer", "mine"}, names); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestRunLifecycle(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{Limits: Limits{MaxSteps: 1, MaxOutputBytes: 100}})
	if _, err := rs.begin(t.Context(), h, "kernel", Params{}); !errors.Is(err, ErrContextBusy) {
		t.Errorf("second Begin: %v, want ErrContextBusy", err)
	}
	step := mustExec(t, r, "print('x' * 1000)")
	if !step.Truncated() || step.StdoutDropped != 901 {
		t.Errorf("dropped %d, want 901, and that the step says so", step.StdoutDropped)
	}
	if step, err := r.Exec(t.Context(), "1"); !errors.Is(err, ErrStepLimit) || step != nil {
		t.Errorf("after the last step: %v, want ErrStepLimit and no step", err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if _, err := r.Exec(t.Context(), "1"); !errors.Is(err, ErrRunClosed) {
		t.Errorf("Exec: %v, want ErrRunClosed", err)
	}
	if _, err := r.Get(t.Context(), "x"); !errors.Is(err, ErrRunClosed) {
		t.Errorf("Get: %v, want ErrRunClosed", err)
	}
	if err := r.Pull(t.Context(), state.New()); !errors.Is(err, ErrRunClosed) {
		t.Errorf("Pull: %v, want ErrRunClosed", err)
	}
	if err := (*Run)(nil).Close(); err != nil {
		t.Error(err)
	}
	h.begin(t, &rs, Params{})
}

// blockingHost stands for code that does not end before its context does.
type blockingHost struct {
	*pythonHost
	code    string
	started chan struct{}
}

func (h *blockingHost) execute(ctx context.Context, id string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	if request.Code != h.code {
		return h.pythonHost.execute(ctx, id, request, handler)
	}
	close(h.started)
	ctx, unbind := handler.Within(ctx)
	defer unbind()
	<-ctx.Done()
	return jupyter.ExecuteReply{}, context.Cause(ctx)
}

func TestStepTimeout(t *testing.T) {
	t.Parallel()
	var rs runs
	h := &blockingHost{newPythonHost(t, "plain"), "forever", make(chan struct{})}
	r, err := rs.begin(t.Context(), h, "kernel", Params{Limits: Limits{StepTimeout: time.Millisecond}})
	must.Do(t, err)
	defer r.Close()
	step, err := r.Exec(t.Context(), "forever")
	must.Is(t, err, ErrStepTimeout)
	if step == nil || step.Error == nil || step.Error.Name != "TimeoutError" {
		t.Fatalf("got %+v, want a step with a TimeoutError", step)
	}
	if text := step.Observation(); !strings.HasPrefix(text, "Interrupted:\nThe code took longer than 1ms, which is the limit.\nError:\nTimeoutError: ") {
		t.Errorf("the model reads %q, want %q at its start", text, "Interrupted:\nThe code took longer than 1ms, which is the limit.\nError:\nTimeoutError: ")
	}
}

func TestCloseCutsOff(t *testing.T) {
	t.Parallel()
	var rs runs
	h := &blockingHost{newPythonHost(t, "plain"), "forever", make(chan struct{})}
	r, err := rs.begin(t.Context(), h, "kernel", Params{})
	must.Do(t, err)
	result := make(chan error, 1)
	go func() {
		_, err := r.Exec(t.Context(), "forever")
		result <- err
	}()
	<-h.started
	r.Close()
	if err := <-result; !errors.Is(err, ErrRunClosed) {
		t.Errorf("got %v, want ErrRunClosed", err)
	}
}

func TestKernelIsAnotherOne(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{})
	h.restart(t)
	if _, err := r.Get(t.Context(), "x"); !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("Get: %v, want sandbox.ErrKernelDied", err)
	}
	if err := r.Pull(t.Context(), state.New()); !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("Pull: %v, want sandbox.ErrKernelDied", err)
	}
	mustExec(t, r, "1")
	h.restart(t)
	if step, err := r.Exec(t.Context(), "1"); !errors.Is(err, sandbox.ErrKernelDied) || len(step.Results) != 1 {
		t.Errorf("Exec: %v, want sandbox.ErrKernelDied and one result", err)
	}
}

// TestRunGoesOnInAnotherKernel checks that the step after the death of a kernel begins
// with the run's state, including the values pulled since.
func TestRunGoesOnInAnotherKernel(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		set(t, st, "x", 1)
		double := MustTool("double", "", func(_ context.Context, in struct{ X int }) (int, error) { return 2 * in.X, nil })
		r := h.begin(t, &rs, Params{State: st, Tools: []Tool{double}, Guard: &Guard{}})
		mustExec(t, r, "x += 1\ny = 1")
		must.Do(t, r.Pull(t.Context(), st))
		mustExec(t, r, "y = 7")
		h.stop()
		if step, err := r.Exec(t.Context(), "1"); !errors.Is(err, sandbox.ErrKernelDied) || step == nil {
			t.Fatalf("got %+v, %v, want sandbox.ErrKernelDied and a step", step, err)
		}
		h.start(t)
		step, err := r.Exec(t.Context(), "import os")
		if err != nil || len(step.Violations) != 1 {
			t.Errorf("without the guard: %+v, %v, want one violation and no error", step, err)
		}
		if got := mustExec(t, r, "double(x), y").Text(); got != "(4, 1)" {
			t.Errorf("got %q, want %q", got, "(4, 1)")
		}
		if err := r.Pull(t.Context(), st); err != nil || cmp.Diff([]string{"x", "y"}, st.Names()) != "" {
			t.Errorf("got %v, %v, want %v and no error", st.Names(), err, []string{"x", "y"})
		}
	})
}

// TestRunWhoseModulesAreRemoved checks that after code has removed the run's modules from
// the kernel, the error says that the run began with another kernel, and that the next
// step prepares it again.
func TestRunWhoseModulesAreRemoved(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		set(t, st, "x", 1)
		double := MustTool("double", "", func(_ context.Context, in struct{ X int }) (int, error) { return 2 * in.X, nil })
		r := h.begin(t, &rs, Params{State: st, Tools: []Tool{double}})
		_, err := r.Exec(t.Context(), "import sys\nfor m in ('codec', 'state', 'tools'): del sys.modules['_e2bctl_' + m]\n5")
		must.Is(t, err, sandbox.ErrKernelDied)
		if got := mustExec(t, r, "double(x)").Text(); got != "2" {
			t.Errorf("got %q, want %q", got, "2")
		}
	})
}

// TestStateIsNotSource checks that state never travels as source code.
func TestStateIsNotSource(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	const marker = "needle-in-the-state"
	h.onSend = func(request jupyter.ExecuteRequest) {
		text, _ := json.Marshal(request)
		if bytes.Contains(text, []byte(marker)) {
			t.Errorf("the state is in a request: %.200s", text)
		}
		if request.Code != "" && (!request.Silent || request.StoreHistory) {
			t.Errorf("not silent: %+v", request)
		}
	}
	var rs runs
	st := state.New()
	set(t, st, "x", marker)
	r := h.begin(t, &rs, Params{State: st})
	if v, err := r.Get(t.Context(), "x"); err != nil || !bytes.Contains(v.Bytes(), []byte(marker)) {
		t.Errorf("got %s, %v, want %q in it and no error", v.Bytes(), err, []byte(marker))
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte(`{"values":[["a",17]]}{"v":1,"value":1}`), 21)
	f.Add([]byte(`{"values":[["a",-1]]}`), 21)
	f.Add([]byte(`{"blobs":[["a",99]]}{}`), 20)
	f.Fuzz(func(_ *testing.T, frame []byte, head int) {
		_ = readFrame(bytes.NewReader(frame), head, len(frame), func(string, state.Value) error { return nil })
	})
}

func mustRequest(code string) jupyter.ExecuteRequest { return jupyter.ExecuteRequest{Code: code} }

// Decode works on every step that has a value, and otherwise returns an error with the
// reason.
func TestDecodeStep(t *testing.T) {
	t.Parallel()
	var rs runs
	r := newPythonHost(t, "plain").begin(t, &rs, Params{})
	var point struct{ X, Y float64 }
	if err := mustExec(t, r, "{'x': (1 + 1), 'y': float('inf')}").Decode(&point); err != nil || point.X != 2 || !math.IsInf(point.Y, 1) {
		t.Errorf("got %v, %v, want 2 and infinity", point, err)
	}
	var pair [2]int
	if err := mustExec(t, r, "(1, 2)").Decode(&pair); err != nil || pair != [2]int{1, 2} {
		t.Errorf("got %v, %v, want what has no JSON as well", pair, err)
	}
	if err := mustExec(t, r, "x = 1").Decode(&pair); err == nil || !strings.Contains(err.Error(), "step 3: there is none: the code does not end with") {
		t.Errorf("got %v, want an error that says why", err)
	}
	failed, err := r.Exec(t.Context(), "1/0")
	must.Do(t, err)
	if err := failed.Decode(&pair); err == nil || !strings.Contains(err.Error(), "ZeroDivisionError: division by zero") {
		t.Errorf("got %v, want an error with the exception", err)
	}
	if err := mustExec(t, r, "'x'").Decode(&pair); err == nil || !strings.Contains(err.Error(), "step 5: state: ") {
		t.Errorf("got %v, want an error that names the step", err)
	}
	var total int
	if err := mustExec(t, r, "final_answer(12)").Decode(&total); err != nil || total != 12 {
		t.Errorf("got %d, %v, want the final answer", total, err)
	}
}
