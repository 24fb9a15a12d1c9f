//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/state"
)

// begin begins a run that ends with the test.
func begin(t *testing.T, sb *sandbox.Sandbox, p *agent.Params) *agent.Run {
	t.Helper()
	r, err := agent.Begin(t.Context(), sb, p)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// decoded returns a value as its Go type.
func decoded[T any](t *testing.T, v state.Value) (x T) {
	t.Helper()
	if err := v.Decode(&x); err != nil {
		t.Error(err)
	}
	return x
}

var add = agent.MustTool("add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil })

// A sandbox can have any number of runs, each with its own final answer.
func TestTenRuns(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	st := state.New()
	sandboxtest.Eval(t, sb, "seen = []")
	for i := range 10 {
		must.Do(t, st.Set("i", i))
		r := begin(t, sb, &agent.Params{State: st, Tools: []agent.Tool{add}})
		step := observe(t, r, "seen.append(i)\nfinal_answer([add(i, 1), len(seen)])")
		if got := decoded[[2]int](t, step.Value); !step.Final || step.Error != nil || got != [2]int{i + 1, i + 1} {
			t.Errorf("run %d: %v, %+v, want the final answer %v and no Python error", i, got, step, [2]int{i + 1, i + 1})
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := sandboxtest.Eval(t, sb, "'add' in globals(), 'final_answer' in globals()"); got != "(False, False)" {
		t.Errorf("after the last one: %s, want %s", got, "(False, False)")
	}
}

// Runs in several contexts can be under way at once; a context has only one.
func TestRunsAtOnce(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	const n = 4
	var together sync.WaitGroup
	together.Add(n)
	meet := agent.MustTool("meet", "", func(ctx context.Context, in struct{ I int }) (int, error) {
		together.Done()
		together.Wait()
		return in.I, nil
	})
	var runs sync.WaitGroup
	for i := range n {
		c, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		st := state.New()
		must.Do(t, st.Set("i", i))
		r := begin(t, sb, &agent.Params{Context: c.ID, State: st, Tools: []agent.Tool{meet}})
		if _, err := agent.Begin(t.Context(), sb, &agent.Params{Context: c.ID}); !errors.Is(err, agent.ErrContextBusy) {
			t.Errorf("a second run in the context: %v, want agent.ErrContextBusy", err)
		}
		runs.Go(func() {
			if step, err := r.Exec(t.Context(), "final_answer(meet(i))"); err != nil || !step.Final || decoded[int](t, step.Value) != i {
				t.Errorf("%d: got %+v, %v, want the final answer %[1]d and no error", i, step, err)
			}
		})
	}
	runs.Wait()
}

// warmUp runs code that raises an exception: the first traceback of a kernel takes a
// while, which is not tested here.
func warmUp(t *testing.T, sb *sandbox.Sandbox, code string) {
	t.Helper()
	_, err := sb.RunCode(t.Context(), code+"\n1/0", nil)
	if _, raised := errors.AsType[*sandbox.ExecutionError](err); !raised {
		t.Fatalf("got %v, want raised", err)
	}
}

// However code overruns its time, the step ends as timed out and the kernel continues.
func TestStepTimeouts(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	waits := agent.MustTool("waits", "", func(ctx context.Context, _ struct{}) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	warmUp(t, sb, "import subprocess, threading, time\nkept = 42")
	hanging := map[string]string{
		"def f():\n    time.sleep(600)\nf()": "    time.sleep(600)",
		"while True: pass":                   "while True: pass",
		"waits()":                            "waits()",
		"input()":                            "input()",
		"subprocess.run(['sleep', '600'])":   "subprocess.run(['sleep', '600'])",
		"t = threading.Thread(target=waits)\nt.start()\nt.join()":      "t.join()",
		"try:\n    waits()\nexcept Exception:\n    pass\nwaits()":      "    waits()",
		"try:\n    time.sleep(600)\nfinally:\n    print('cleaned up')": "    time.sleep(600)",
	}
	patience.Doubling(t, "all of the code is where it hangs", time.Second/2, func(limit time.Duration) bool {
		r := begin(t, sb, &agent.Params{
			Tools: []agent.Tool{waits}, Limits: agent.Limits{StepTimeout: limit},
			Stdin: func(ctx context.Context, _ string, _ bool) (string, error) { <-ctx.Done(); return "", ctx.Err() },
		})
		defer r.Close()
		for code, where := range hanging {
			step, err := r.Exec(t.Context(), "print('begun')\n"+code)
			if !errors.Is(err, agent.ErrStepTimeout) || step == nil || step.Error == nil {
				t.Errorf("%s: got %+v, %v, want agent.ErrStepTimeout and a Python error", code, step, err)
				continue
			}
			if got := sandboxtest.Eval(t, sb, "kept"); got != "42" {
				t.Errorf("after %s: %q, want %q", code, got, "42")
			}
			line := 2 + slices.Index(strings.Split(code, "\n"), where)
			if e := step.Error; e.Line != line || !strings.Contains(e.Traceback, where) {
				t.Logf("%s: after %v it was in line %d, want %d, at %q: %s", code, limit, e.Line, line, where, e.Traceback)
				continue
			}
			delete(hanging, code)
			if e := step.Error; e.Name != "KeyboardInterrupt" {
				t.Errorf("%s: got %+v, want KeyboardInterrupt", code, e)
			}
			if !strings.HasPrefix(step.Stdout, "begun\n") {
				t.Errorf("%s: printed %q, want %q at its start", code, step.Stdout, "begun\n")
			}
			if text, want := step.Observation(), "took longer than "+limit.String(); !strings.Contains(text, want) || !strings.Contains(text, where) {
				t.Errorf("%s: the model reads %q, want %q in it and %q in it", code, text, want, where)
			}
			if cleans := strings.Contains(code, "finally"); cleans != strings.HasSuffix(step.Stdout, "cleaned up\n") {
				t.Errorf("%s: printed %q, want a clean-up: %v", code, step.Stdout, cleans)
			}
		}
		return len(hanging) == 0
	})
}

// Code that does not stop when its time is over costs the run its kernel: the next step
// begins in another one, with all values of the run, and says so. The time that it
// waits does not count as its own.
func TestStepThatDoesNotStop(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	st := state.New()
	must.Do(t, st.Set("x", 40))
	r := begin(t, sb, &agent.Params{
		State: st, Tools: []agent.Tool{add}, Guard: &agent.Guard{Allow: []string{"signal", "time"}},
		Limits: agent.Limits{StepTimeout: 5 * time.Second},
	})
	observe(t, r, "lost = 1")
	step, err := r.Exec(t.Context(), "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\ntime.sleep(600)")
	if !errors.Is(err, agent.ErrStepTimeout) || step == nil {
		t.Fatalf("got %+v, %v, want a step and ErrStepTimeout", step, err)
	}
	if step.Stdout != "begun\n" || step.Error == nil || step.Error.Name != "TimeoutError" {
		t.Fatalf("got %+v, want stdout %q and a TimeoutError", step, "begun\n")
	}
	if text, want := step.Observation(), "did not stop"; !strings.Contains(text, want) {
		t.Fatalf("the model reads %q, want %q in it", text, want)
	}
	step = observe(t, r, "try:\n    lost\nexcept NameError:\n    x = add(x, 2)\nx")
	if step.Text() != "42" || !step.Restarted || !strings.Contains(step.Observation(), "variables that earlier code made are lost") {
		t.Errorf("the next step: %+v, want text %q, a restart and %q for the model", step, "42", "variables that earlier code made are lost")
	}
	if step := observe(t, r, "try:\n    import os\nexcept ImportError:\n    pass"); len(step.Violations) != 1 || step.Restarted {
		t.Errorf("without the guard: %+v", step)
	}
}

// The guard's report of a step that hit its limit belongs to that step. Its reports
// about a cancelled step are in the audit, and not in the next step.
func TestGuardOfAStepThatWasCut(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	var audit bytes.Buffer
	warmUp(t, sb, "")
	begun := func() {}
	r := begin(t, sb, &agent.Params{
		Guard: &agent.Guard{}, Audit: &audit, Limits: agent.Limits{StepTimeout: 5 * time.Second},
		Stdout: whenWritten{func() { begun() }},
	})
	cut := "try:\n    import os\nexcept ImportError:\n    pass\nimport time\nprint('begun', flush=True)\ntime.sleep(600)"
	if step, err := r.Exec(t.Context(), cut); !errors.Is(err, agent.ErrStepTimeout) || len(step.Violations) != 1 || !slices.Contains(step.Imports, "time") {
		t.Fatalf("got %+v, %v, want agent.ErrStepTimeout, one violation and the import %q", step, err, "time")
	}
	if step := observe(t, r, "1"); len(step.Violations) != 0 || len(step.Imports) != 0 {
		t.Errorf("the next step: %+v, want no violations and no step.Imports", step)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun = cancel
	if _, err := r.Exec(ctx, strings.ReplaceAll(cut, "os", "socket")); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	if step := observe(t, r, "1"); len(step.Violations) != 0 || len(step.Imports) != 0 {
		t.Errorf("the next step: %+v, want no violations and no step.Imports", step)
	}
	must.Do(t, r.Close())
	var events []string
	for line := range strings.Lines(audit.String()) {
		var e struct {
			Event   string
			N       int
			Blocked []agent.Violation
		}
		must.Do(t, json.Unmarshal([]byte(line), &e))
		event := fmt.Sprint(e.Event, e.N)
		for _, v := range e.Blocked {
			event += " " + v.Name
		}
		events = append(events, event)
	}
	if want := []string{"begin0", "step1 os", "step2", "step3", "cut3 socket", "step4", "end0"}; !slices.Equal(events, want) {
		t.Errorf("got %q, want %q", events, want)
	}
}

func TestRunTimeout(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Eval(t, sb, "kept = 42")
	var r *agent.Run
	patience.Doubling(t, "a step of the run has begun", time.Second, func(limit time.Duration) bool {
		r = begin(t, sb, &agent.Params{Limits: agent.Limits{RunTimeout: limit}})
		step, err := r.Exec(t.Context(), "print('begun', flush=True)\nimport time\ntime.sleep(600)")
		if !errors.Is(err, agent.ErrRunTimeout) {
			t.Errorf("got %+v, %v, want agent.ErrRunTimeout", step, err)
		}
		if step != nil && step.Stdout == "begun\n" {
			return true
		}
		if err := r.Close(); err != nil { // a context has one run at a time
			t.Error(err)
		}
		return false
	})
	if step, err := r.Exec(t.Context(), "1"); !errors.Is(err, agent.ErrRunTimeout) || step != nil {
		t.Errorf("after it: %+v, %v, want agent.ErrRunTimeout and no step", step, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := sandboxtest.Eval(t, sb, "kept"); got != "42" {
		t.Errorf("after the run: %q, want %q", got, "42")
	}
}

func TestLimitsInASandbox(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	r := begin(t, sb, &agent.Params{Limits: agent.Limits{MaxMemoryBytes: 128 << 20, MaxOutputBytes: 1000, MaxSteps: 3}})
	if step := observe(t, r, "x = bytearray(1 << 30)"); step.Error == nil || step.Error.Name != "MemoryError" {
		t.Errorf("got %+v, want a Python error %q", step.Error, "MemoryError")
	}
	step := observe(t, r, "print('head' + 'x' * 5_000_000 + 'tail')")
	if n := int64(len("head") + 5_000_000 + len("tail\n")); !step.Truncated() || step.StdoutDropped < n-1000 {
		t.Errorf("%d bytes kept, %d dropped, want at most 1000 kept", len(step.Stdout), step.StdoutDropped)
	}
	if !strings.HasPrefix(step.Stdout, "head") || !strings.HasSuffix(step.Stdout, "tail\n") {
		t.Errorf("printed %q, want the head and the tail", step.Stdout)
	}
	if step := observe(t, r, "1"); step.Text() != "1" {
		t.Errorf("got %+v, want text %q", step, "1")
	}
	if step, err := r.Exec(t.Context(), "1"); !errors.Is(err, agent.ErrStepLimit) || step != nil {
		t.Errorf("got %+v, %v, want agent.ErrStepLimit and no step", step, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := sandboxtest.Eval(t, sb, "len(bytearray(1 << 30))"); got != "1073741824" {
		t.Errorf("after the run: %s, want %s", got, "1073741824")
	}
}

// Hooks see every step and every tool call, properly nested.
func TestTrace(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	type key struct{}
	var mu sync.Mutex
	var events []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprintf(format, args...))
	}
	seen := agent.MustTool("seen", "", func(ctx context.Context, in struct{ X int }) (int, error) {
		note("called within %v", ctx.Value(key{}))
		if in.X < 0 {
			return 0, errors.New("negative")
		}
		return in.X, nil
	})
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{seen}, Trace: &agent.Trace{
		Step: func(ctx context.Context, n int, code string) (context.Context, func(*agent.Step, error)) {
			note("step %d %s", n, code)
			return context.WithValue(ctx, key{}, n), func(s *agent.Step, err error) { note("step %d ended: %v %v", s.N, s.Error != nil, err) }
		},
		Tool: func(ctx context.Context, call agent.ToolCall) (context.Context, func(error)) {
			note("tool %s of step %d", call.Tool, call.Step)
			return context.WithValue(ctx, key{}, fmt.Sprint(ctx.Value(key{}), " ", call.Tool)), func(err error) { note("tool ended: %v", err) }
		},
	}})
	observe(t, r, "seen(1)")
	observe(t, r, "seen(-1)")
	want := []string{
		"step 1 seen(1)", "tool seen of step 1", "called within 1 seen", "tool ended: <nil>", "step 1 ended: false <nil>",
		"step 2 seen(-1)", "tool seen of step 2", "called within 2 seen", "tool ended: negative", "step 2 ended: true <nil>",
	}
	if !slices.Equal(events, want) {
		t.Errorf("got %q, want %q", events, want)
	}
}

// The kernel is killed during a step: the next step begins again with state,
// guard and tools, and so does the next run.
func TestKernelKilledInARun(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	st := state.New()
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, v := range map[string]any{"x": 20, "large": large} {
		must.Do(t, st.Set(name, v))
	}
	p := &agent.Params{State: st, Tools: []agent.Tool{add}, Guard: &agent.Guard{Allow: []string{"os", "signal"}}}
	r := begin(t, sb, p)
	observe(t, r, "x += 1")
	must.Do(t, r.Pull(t.Context(), st))
	step, err := r.Exec(t.Context(), "lost = 1\nprint('before', flush=True)\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
	if !errors.Is(err, sandbox.ErrKernelDied) || step == nil || step.Stdout != "before\n" {
		t.Fatalf("got %+v, %v, want sandbox.ErrKernelDied and stdout %q", step, err, "before\n")
	}
	const check = "try:\n    import subprocess\nexcept ImportError:\n    guarded = True\nadd(x, 21), len(large), guarded"
	if step := observe(t, r, check); step.Text() != "(42, 1048576, True)" {
		t.Errorf("the next step: %+v, want text %q", step, "(42, 1048576, True)")
	}
	if step := observe(t, r, "lost"); step.Error == nil || step.Error.Name != "NameError" {
		t.Errorf("a variable of the dead kernel: %+v, want a Python error %q", step, "NameError")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if step := observe(t, begin(t, sb, p), check); step.Text() != "(42, 1048576, True)" {
		t.Errorf("the next run: %+v, want text %q", step, "(42, 1048576, True)")
	}
}

// canceller is called with the output of code.
type canceller context.CancelFunc

func (c canceller) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}

// A kernel that ignores the interrupt is replaced: the step that waited for it gets an
// error before it runs, and the one after that begins again.
func TestKernelReplacedInARun(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	st := state.New()
	must.Do(t, st.Set("x", 21))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := begin(t, sb, &agent.Params{State: st, Tools: []agent.Tool{add}, Guard: &agent.Guard{Allow: []string{"signal"}}, Stdout: canceller(cancel)})
	step, err := r.Exec(ctx, "import collections, itertools, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\ncollections.deque(itertools.repeat(0), maxlen=0)")
	if !errors.Is(err, context.Canceled) || step == nil {
		t.Fatalf("got %+v, %v, want context.Canceled and a step", step, err)
	}
	if step, err := r.Exec(t.Context(), "x"); !errors.Is(err, sandbox.ErrKernelRestarted) || step != nil {
		t.Errorf("the next step: %+v, %v, want sandbox.ErrKernelRestarted and no step", step, err)
	}
	if step := observe(t, r, "add(x, x)"); step.Text() != "42" {
		t.Errorf("the one after it: %+v, want text %q", step, "42")
	}
}

// A step separates printed, displayed and raised values, for a model to read.
func TestObservationInASandbox(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	r := begin(t, sb, &agent.Params{Limits: agent.Limits{MaxOutputBytes: 400}})
	step := observe(t, r, `import sys
import matplotlib.pyplot as plt
print("to stdout")
print("to stderr", file=sys.stderr)
plt.plot([1, 2])
plt.show()
1/0`)
	if step.Stdout != "to stdout\n" || step.Stderr != "to stderr\n" {
		t.Errorf("got stdout %q, stderr %q, want %q, %q", step.Stdout, step.Stderr, "to stdout\n", "to stderr\n")
	}
	if step.Error == nil || step.Error.Name != "ZeroDivisionError" || len(step.Results) != 1 {
		t.Fatalf("got %+v, want a ZeroDivisionError and one result", step)
	}
	if step.Results[0].PNG() == nil {
		t.Error("the figure that was shown before the error is lost")
	}
	text := step.Observation()
	for _, part := range []string{"Printed:\nto stdout\n", "Printed to stderr:\nto stderr\n", "Displayed:\n", "Error:\nZeroDivisionError: division by zero"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %q", part, text)
		}
	}
	text = observe(t, r, "print('a' * 10_000)\n'b' * 10_000").Observation()
	if strings.Count(text, "bytes dropped]") != 2 || len(text) > 1200 {
		t.Errorf(`got %q, want two notices of dropped bytes in at most 1200 bytes`, text)
	}
}

// A model reads in an exception its own code and that of libraries, and nothing of the
// code behind a tool, a guard, a question or an interrupt.
func TestTracebacksForModels(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	weather := agent.MustTool("weather", "", func(_ context.Context, q struct {
		City string `json:"city"`
	}) (int, error) {
		return 0, errors.New("no such city")
	})
	warmUp(t, sb, "import json, time")
	r := begin(t, sb, &agent.Params{
		Tools: []agent.Tool{weather}, Guard: &agent.Guard{Allow: []string{"json", "time"}}, Limits: agent.Limits{StepTimeout: 5 * time.Second},
	})
	for code, want := range map[string]string{
		"def f(x):\n    return weather(x)\nf('Paris')": "weather(x)",
		"weather(1, 2, 3)": "weather(1, 2, 3)",
		"async def f():\n    return await weather.aio('x')\nawait f()":              "weather.aio('x')",
		"try:\n    weather('x')\nexcept Exception as e:\n    raise KeyError from e": "weather('x')",
		"try:\n    import os\nexcept ImportError:\n    1/0":                         "import os",
		"class A:\n    @property\n    def x(self): return 1/0\ngetattr(A(), 'x')":   "return 1/0",
		"raise ExceptionGroup('two', [TypeError(2)])":                               "TypeError: 2",
		"input('?')":                   "input('?')",
		"import os":                    "Import of os is not allowed (line 1)",
		"import json\njson.loads('{')": "json/decoder.py",
		"import time\ntime.sleep(60)":  "time.sleep(60)",
	} {
		step, err := r.Exec(t.Context(), code)
		if step == nil || step.Error == nil {
			t.Errorf("%s: got %+v, %v, want a Python error", code, step, err)
			continue
		}
		text := step.Observation() + step.Error.Traceback
		if strings.Contains(text, "e2bctl") || strings.Contains(text, "Could not get source") || !strings.Contains(text, want) {
			t.Errorf("%s: the model reads %s, want %q in it and nothing of ours", code, text, want)
		}
	}
}

// A sandbox that ends during a run ends its step, and the run can still be
// closed.
func TestSandboxGoneUnderARun(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	for name, end := range map[string]func(*sandbox.Sandbox) error{
		"killed": func(sb *sandbox.Sandbox) error { return sb.Kill(t.Context()) },
		"closed": func(sb *sandbox.Sandbox) error { return sb.Close() },
	} {
		sb := cloud.Create(t)
		begun := make(chan struct{})
		waits := agent.MustTool("waits", "", func(ctx context.Context, _ struct{}) (int, error) {
			close(begun)
			<-ctx.Done()
			return 0, ctx.Err()
		})
		r, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: []agent.Tool{waits}})
		must.Do(t, err)
		ended := make(chan error, 1)
		go func() { <-begun; ended <- end(sb) }()
		step, err := r.Exec(t.Context(), "waits()")
		if step == nil || !errors.Is(err, sandbox.ErrClosed) && !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: got %+v, %v, want a step, and ErrClosed or ErrGone", name, step, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Exec(t.Context(), "1"); err == nil {
			t.Errorf("%s: code runs afterwards", name)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
