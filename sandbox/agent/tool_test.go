package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	golog "log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

type searchIn struct {
	Query string   `py:"query" doc:"what to look for"`
	Limit *int     `py:"limit"`
	Tags  []string `py:"tags,omitempty"`
}

type hit struct {
	Title string `py:"title"`
	Score float64
}

var search = MustTool("search", "Searches.", func(_ context.Context, in searchIn) ([]hit, error) {
	n := 1
	if in.Limit != nil {
		n = *in.Limit
	}
	return make([]hit, n), nil
})

func TestToolIsDescribed(t *testing.T) {
	t.Parallel()
	if got, want := search.Signature(), "search(query: str, limit: int = None, tags: list[str] = None) -> list[dict]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	want := "Searches.\n\nArgs:\n    query (str): what to look for\n    limit (int, optional)\n    tags (list[str], optional)\n\nReturns:\n    list[{'title': str, 'Score': float}]"
	if diff := cmp.Diff(want, search.Doc()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	schema := `{"additionalProperties":false,"properties":{"limit":{"type":"integer"},"query":{"description":"what to look for","type":"string"},"tags":{"items":{"type":"string"},"type":"array"}},"required":["query"],"type":"object"}`
	if diff := cmp.Diff(schema, string(search.Schema())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWrongTools(t *testing.T) {
	t.Parallel()
	type twice struct {
		A int `py:"x"`
		B int `py:"x"`
	}
	type keyword struct {
		A int `py:"class"`
	}
	number := func(context.Context, struct{}) (int, error) { return 0, nil }
	wrong := map[string]error{}
	_, wrong["not a Python identifier"] = NewTool("a b", "", number)
	_, wrong["a Python builtin"] = NewTool("print", "", number)
	_, wrong["final_answer of its own"] = NewTool("final_answer", "", number)
	_, wrong["option 1 is nil"] = NewTool("f", "", number, nil)
	_, wrong["it has to be a struct"] = NewTool("f", "", func(context.Context, string) (int, error) { return 0, nil })
	_, wrong["chan int has no Python form"] = NewTool("f", "", func(context.Context, struct{ C chan int }) (int, error) { return 0, nil })
	_, wrong["func() has no Python form"] = NewTool("f", "", func(context.Context, struct{}) (func(), error) { return nil, nil })
	_, wrong["a Python keyword"] = NewTool("f", "", func(context.Context, keyword) (int, error) { return 0, nil })
	_, wrong[`two parameters have the name "x"`] = NewTool("f", "", func(context.Context, twice) (int, error) { return 0, nil })
	for want, err := range wrong {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustTool does not panic")
		}
	}()
	MustTool("a b", "", number)
}

func text(t testing.TB, r *Run, code string) string {
	t.Helper()
	var s string
	must.Do(t, mustExec(t, r, code).Value.Decode(&s))
	return s
}

// caught returns code that evaluates to the exception of an expression.
func caught(expression string) string {
	return "try:\n    r = repr(" + expression + ")\nexcept Exception as e:\n    r = type(e).__name__ + ': ' + str(e) + ': ' + str(getattr(e, 'type', '')) + str(getattr(e, 'retryable', ''))\nr"
}

func TestToolCalls(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		limited := atomic.Int32{}
		r := h.begin(t, &rs, Params{Tools: []Tool{
			search,
			MustTool("add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }),
			MustTool("echo", "", func(_ context.Context, in struct{ X any }) (any, error) { return in.X, nil }),
			MustTool("nothing", "", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }),
			MustTool("fails", "", func(context.Context, struct{}) (int, error) { return 0, fmt.Errorf("no luck: %w", api.ErrRetryable) }),
			MustTool("typed", "", func(context.Context, struct{}) (int, error) {
				return 0, &ToolError{Type: "Empty", Message: "none left"}
			}),
			MustTool("custom", "", func(context.Context, struct{}) (int, error) {
				return 0, fmt.Errorf("%w", &fs.PathError{Op: "open", Path: "x", Err: errors.New("away")})
			}),
			MustTool("bad_hook", "", func(context.Context, struct{}) (int, error) { return 1, nil }, WithApproval(func(context.Context, ToolCall) error { panic("secret") })),
			MustTool("panics", "", func(context.Context, struct{}) (int, error) { panic("secret") }),
			MustTool("odd", "", func(context.Context, struct{}) (any, error) { return make(chan int), nil }),
			MustTool("hangs", "", func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, WithToolLimits(ToolLimits{Timeout: time.Millisecond})),
			MustTool("twice", "", func(context.Context, struct{}) (int32, error) { return limited.Add(1), nil }, WithToolLimits(ToolLimits{MaxCalls: 2})),
			MustTool("small", "", func(_ context.Context, in struct{ X string }) (string, error) { return in.X + in.X, nil }, WithToolLimits(ToolLimits{MaxArgumentBytes: 100, MaxResultBytes: 100})),
			MustTool("asks", "", func(context.Context, struct{ X int }) (int, error) { return 1, nil }, WithApproval(func(_ context.Context, c ToolCall) error {
				if strings.Contains(string(c.Arguments.Bytes()), "13") {
					return errors.New("not 13")
				}
				return nil
			})),
		}})
		for expression, want := range map[string]string{
			"add(1, B=2)":                            "3",
			"len(search('x', limit=3))":              "3",
			"len(search(query='x', tags=None))":      "1",
			"echo({'a': (1, 2.0, b'x')})":            "{'a': (1, 2.0, b'x')}",
			"echo('x' * 3000000 + 'ä')[-2:]":         "'xä'",
			"nothing()":                              "None",
			"add(1)":                                 "TypeError: add: missing a required argument: 'B'; call it as add(A: int, B: int) -> int: ",
			"add(1, 'x')":                            "TypeError: ",
			"echo(lambda: 0)":                        `TypeError: echo: wrong arguments: "X", a builtins.function, cannot be sent: convert it`,
			"(lambda x: (x.append(x), echo(x)))([])": "TypeError: echo: wrong arguments: the value cannot be sent: it contains itself: convert it",
			"fails()":                                "ToolError: fails: no luck: ",
			"custom()":                               "ToolError: custom: open x: away: fs.PathErrorFalse",
			"typed()":                                "ToolError: typed: none left: EmptyFalse",
			"panics()":                               "ToolError: panics: it panicked; the log of the program that runs the tool says more: InternalErrorFalse",
			"odd()":                                  "ToolError: odd: the tool's result has no Python form",
			"hangs()":                                "ToolError: hangs: it took longer than 1ms: TimeoutErrorTrue",
			"(twice(), twice(), twice())":            "ToolError: twice: it was called 2 times, as often as it may be: LimitErrorFalse",
			"small('x' * 200)":                       "ToolError: the arguments of small have",
			"small('x' * 60)":                        "ToolError: the result of small has",
			"asks(12)":                               "1",
			"asks(13)":                               "ToolError: asks: the call was not approved: not 13: RefusedFalse",
			"type(add)(add.__code__, {})":            "TypeError",
			"add.__doc__.split()[0]":                 "'Args:'",
		} {
			if got := text(t, r, caught(expression)); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", expression, got, want)
			}
		}
		if got := text(t, r, caught("fails()")); !strings.HasSuffix(got, "True") {
			t.Errorf("retryable: %s, want %q at its end", got, "True")
		}
		// The error of a tool that fails in another process, such as one of a pool, comes whole.
		if got := text(t, r, "import pickle\ntry:\n    typed()\nexcept Exception as e:\n    again = pickle.loads(pickle.dumps(e))\nrepr((type(again).__name__, str(again), again.tool, again.type, again.retryable))"); got != `('ToolError', 'typed: none left', 'typed', 'Empty', False)` {
			t.Errorf("a pickled error: got %s", got)
		}
		// A name that is not a tool, called without going through the functions.
		if got := text(t, r, caught("__import__('sys').modules['_e2bctl_tools']._bridge.call('os', {})")); !strings.Contains(got, `no tool "os"`) {
			t.Errorf("got %q, want %q in it", got, `no tool "os"`)
		}
		// From threads and from coroutines, many times.
		code := "import asyncio, threading\nseen = []\nts = [threading.Thread(target=lambda i=i: seen.extend(add(i, j) for j in range(20))) for i in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nasync def main():\n    return await asyncio.gather(*(add.aio(i, 1) for i in range(10)))\nstr([len(seen), sum(seen), threading.Thread, asyncio.new_event_loop().run_until_complete(main())][:2])"
		if got := text(t, r, code); got != "[160, 2080]" {
			t.Errorf("got %q, want %q", got, "[160, 2080]")
		}
		r.Close()
		reply, err := h.execute(t.Context(), "kernel", mustRequest("try:\n    add(1, 2)\nexcept NameError:\n    print('gone')"), kernelconn.Handler{})
		if err != nil || reply.Status != "ok" {
			t.Errorf("after Close: %+v, %v, want reply.Status = %q and no error", reply, err, "ok")
		}
	})
}

// TestApprovedTooLate checks that a call is not made if it is approved when nothing waits for it
// any longer.
func TestApprovedTooLate(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	asked, answer := make(chan struct{}), make(chan struct{})
	var made atomic.Bool
	tool := MustTool("act", "", func(context.Context, struct{}) (int, error) { made.Store(true); return 1, nil },
		WithApproval(func(context.Context, ToolCall) error { close(asked); <-answer; return nil }))
	var rs runs
	r := h.begin(t, &rs, Params{Tools: []Tool{tool}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.Exec(ctx, "try:\n    act()\nexcept act.Error:\n    pass")
		ended <- err
	}()
	<-asked
	cancel()
	close(answer)
	<-ended
	if err := r.Close(); err != nil { // waits for tools
		t.Error(err)
	}
	if made.Load() {
		t.Error("the call was made")
	}
}

// TestToolCallsOverlap checks that eight slow calls from eight threads are under way
// together: each waits for all of them.
func TestToolCallsOverlap(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		var together sync.WaitGroup
		together.Add(8)
		r := h.begin(t, &rs, Params{Tools: []Tool{MustTool("meet", "", func(ctx context.Context, _ struct{}) (int, error) {
			together.Done()
			together.Wait()
			return 1, nil
		})}})
		if got := text(t, r, "import threading\nn = []\nts = [threading.Thread(target=lambda: n.append(meet())) for _ in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nstr(len(n))"); got != "8" {
			t.Errorf("got %q, want %q", got, "8")
		}
	})
}

func TestFinalAnswer(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for code, want := range map[string]string{
			"final_answer({'a': 1})\nprint('not this')":                                                  `{"v":1,"value":{"a":1}}`,
			"def f(n):\n    return f(n - 1) if n else final_answer(5)\nf(50)":                            `{"v":1,"value":5}`,
			"for i in range(3):\n    try:\n        final_answer(i)\n    except:\n        pass\nprint(1)": `{"v":1,"value":0}`,
			"try:\n    final_answer(1)\nfinally:\n    1/0":                                               `{"v":1,"value":1}`,
		} {
			var rs runs
			r := h.begin(t, &rs, Params{})
			step, err := r.Exec(t.Context(), code)
			if err != nil || !step.Final || string(step.Value.Bytes()) != want {
				t.Errorf("%s: got %+v, %v, want the final answer %s and no error", code, step, err, want)
			}
			if strings.Contains(step.Stdout, "not this") {
				t.Errorf("%s: code ran on after final_answer and printed %q", code, step.Stdout)
			}
			if raised := strings.Contains(code, "1/0"); (step.Error != nil) != raised {
				t.Errorf("%s: got %v, want a Python error: %v", code, step.Error, raised)
			}
			if _, err := r.Exec(t.Context(), "1"); !errors.Is(err, ErrRunFinished) {
				t.Errorf("Exec: %v, want ErrRunFinished", err)
			}
			r.Close()
		}
		var rs runs
		r := h.begin(t, &rs, Params{})
		for _, code := range []string{
			"class FinalAnswer(BaseException): pass\nraise FinalAnswer('5')", "print('final_answer(5)')",
			"class D:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/vnd.e2bctl.value+json': '{\"v\":1,\"value\":5}', 'text/plain': 'x'}\nD()",
			"final_answer(lambda: 0)", "final_answer()",
		} {
			if step, err := r.Exec(t.Context(), code); step == nil || step.Final {
				t.Errorf("%s passed for a final answer: %v", code, err)
			}
		}
	})
}

func TestNamesCollide(t *testing.T) {
	t.Parallel()
	tool := MustTool("x", "", func(context.Context, struct{}) (int, error) { return 0, nil })
	st := state.New()
	set(t, st, "x", 1)
	final := state.New()
	set(t, final, "final_answer", 1)
	for _, p := range []*Params{{Tools: []Tool{tool}, State: st}, {Tools: []Tool{tool, tool}}, {State: final}, {Tools: []Tool{{}}}} {
		if err := checkNames(p); err == nil {
			t.Errorf("%+v: no error", p)
		}
	}
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{})
	mustExec(t, r, "x = 5")
	r.Close()
	if _, err := rs.begin(t.Context(), h, "kernel", Params{Tools: []Tool{tool}}); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a variable: %v, want an error with %q", err, `"x"`)
	}
}

// TestToolNamesAreKept checks that code cannot take a tool away: code that says so in its
// text is refused, and if it does so otherwise, that lasts no longer than its step.
func TestToolNamesAreKept(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		tool := MustTool("add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil })
		var rs runs
		r := h.begin(t, &rs, Params{Tools: []Tool{tool}})
		for _, code := range []string{
			"add = add(1, 2)", "x, (add, *y) = 1, [2]", "add += 1", "add: int = 3", "for add in [1]: pass", "with open('/dev/null') as add: pass", "del add",
			"def add(a, b): pass", "async def add(): pass", "class add: pass", "import math as add", "import add.b", "from math import pi as add",
			"try:\n    1/0\nexcept Exception as add: pass", "[add := i for i in [1]]", "if 1:\n    final_answer = 5",
		} {
			step, err := r.Exec(t.Context(), code)
			if err != nil || step.Error == nil {
				t.Errorf("%q: got %+v, %v, want a Python error and no error", code, step, err)
				continue
			}
			if want := "it is a tool. Choose another name"; step.Error.Name != "NameTaken" || !strings.Contains(step.Error.Value, want) {
				t.Errorf("%q: got %+v, want NameTaken with %q", code, step.Error, want)
			}
		}
		for _, code := range []string{
			"globals()['add'] = 3", "exec('del add')", "def f():\n    global add\n    add = 1\nf()",
			"def g(add): add = 1; return [add for add in [1]]\nassert g(2) == [1] and [add for add in [1]] == [1] and (lambda add: (add := 2))(1) == 2",
			"class C:\n    def add(self): pass\n    final_answer = 1\nC().add", "import os.path as add_, math", "x = 1" + strings.Repeat(" + 1", 600),
		} {
			mustExec(t, r, code)
			mustExec(t, r, "assert add(1, 2) == 3")
		}
		r.Close()
		// The kernel knows the tools, but has a variable of that name since.
		_, err := h.execute(t.Context(), "", jupyter.ExecuteRequest{Code: "add = 3"}, kernelconn.Handler{})
		must.Do(t, err)
		if _, err := rs.begin(t.Context(), h, "kernel", Params{Tools: []Tool{tool}}); err == nil || !strings.Contains(err.Error(), `"add" has the name of a variable`) {
			t.Errorf("a variable that was made between runs: got %v, want an error that names it", err)
		}
		r = h.begin(t, &rs, Params{})
		mustExec(t, r, "assert add == 3")
	})
}

func TestRunTimeoutAndMemory(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{Limits: Limits{MaxMemoryBytes: 64 << 20, RunTimeout: time.Hour}})
	if step, err := r.Exec(t.Context(), "x = bytearray(1 << 30)"); err != nil || step.Error == nil || step.Error.Name != "MemoryError" {
		t.Errorf("got %+v, %v, want a Python error %q and no error", step, err, "MemoryError")
	}
	mustExec(t, r, "x = bytearray(1 << 20)")
	r.Close()
	r = h.begin(t, &rs, Params{})
	mustExec(t, r, "len(bytearray(1 << 28))")
	r.deadline = time.Now()
	if _, err := r.Exec(t.Context(), "1"); !errors.Is(err, ErrRunTimeout) {
		t.Errorf("got %v, want ErrRunTimeout", err)
	}
}

func TestObservation(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{Limits: Limits{MaxOutputBytes: 40}})
	if got, want := mustExec(t, r, "print('hello')\n'value'").Observation(), "Printed:\nhello\nValue of the last expression:\n'value'\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got := mustExec(t, r, "print('a' * 1000)\n'b' * 1000").Observation()
	if strings.Count(got, "bytes dropped]") != 2 || len(got) > 300 {
		t.Errorf(`got %q, want two notices of dropped bytes in at most 300 bytes`, got)
	}
	step, err := r.Exec(t.Context(), "1/0")
	if err != nil || !strings.Contains(step.Observation(), "ZeroDivisionError") {
		t.Errorf("got %q, %v, want %q in it and no error", step.Observation(), err, "ZeroDivisionError")
	}
	if got := mustExec(t, r, "x = 1").Observation(); got != "(no output)\n" {
		t.Errorf("got %q, want %q", got, "(no output)\n")
	}
	answered := mustExec(t, r, "final_answer({'total': 1.5, 'ids': (1, None)})")
	if got, want := answered.Observation(), "Final answer:\n{'total': 1.5, 'ids': (1, None)}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	large := Step{Execution: sandbox.Execution{Results: []sandbox.Result{{Main: true}}}} // the kernel left the value out
	if got, want := large.Observation(), "Value of the last expression:\n(left out)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRedactedOutput checks that a secret which code prints, in forms of its own making and in
// pieces, is hidden wherever the output goes.
func TestRedactedOutput(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		const secret = "s3cr3t-väl\"ue"
		var rs runs
		var audit, out bytes.Buffer
		r := h.begin(t, &rs, Params{Audit: &audit, Stdout: &out, Prompt: "the task", Tools: []Tool{
			MustTool("leak", "", func(context.Context, struct{}) (string, error) { return "<" + secret + ">", nil }),
			MustTool("spill", "", func(context.Context, struct{}) (string, error) { return "", errors.New(secret) }),
		}})
		var err error
		r.redact, err = newRedactor([]string{secret})
		must.Do(t, err)
		code := "import base64, sys, urllib.parse as u\ns = 's3cr3t-v' + 'äl\"ue'\nfor c in s: sys.stdout.write(c)\nprint(base64.b64encode(('xy' + s + 'z').encode()).decode(), u.quote(s), u.quote_plus(s))\nprint(leak())\n"
		step := mustExec(t, r, code+"{'k': s}")
		failed, err := r.Exec(t.Context(), "spill()")
		if err != nil || failed.Error == nil {
			t.Fatalf("got %+v, %v, want a Python error and no error", failed, err)
		}
		raised, err := r.Exec(t.Context(), "raise ValueError(s)")
		if err != nil || raised.Error == nil {
			t.Fatalf("got %+v, %v, want a Python error and no error", raised, err)
		}
		must.Do(t, r.Close())
		all := out.String() + audit.String() + step.Stdout + step.Observation() + string(step.Value.Bytes()) + failed.Observation() + raised.Observation() + raised.Error.Value
		for _, form := range []string{"s3cr3t-väl", "czNjcjN0", "3MzY3IzdC", "zM2NyM3Q", "%C3%A4l", "l%22ue"} {
			// The code itself contains the secret in two pieces, and so does its audit.
			if strings.Contains(strings.ReplaceAll(all, `'s3cr3t-v' + 'äl`, ""), form) {
				t.Errorf("%s in %s", form, all)
			}
		}
		if strings.Count(step.Stdout, redacted) != 5 {
			t.Errorf("got %q, want 5 times %q", step.Stdout, redacted)
		}
	})
}

// lockedBuffer is a log to which several goroutines write.
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

// TestPanicOfATool checks that the value of a tool's panic is in the audit and, for a
// client without a logger, in the program's default log: never with a secret, and never
// in the sandbox.
func TestPanicOfATool(t *testing.T) { //nolint:paralleltest // it sets the default logger
	var audit bytes.Buffer
	var log lockedBuffer
	writer, flags, before := golog.Writer(), golog.Flags(), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		golog.SetOutput(writer)
		golog.SetFlags(flags)
	})
	var rs runs
	panics := MustTool("panics", "", func(context.Context, struct{}) (int, error) { panic("out of s3cr3ts") })
	r := newPythonHost(t, "plain").begin(t, &rs, Params{Audit: &audit, Tools: []Tool{panics}, Redact: []string{"s3cr3t"}})
	step, err := r.Exec(t.Context(), "panics()")
	if err != nil || step.Error == nil || step.Error.Name != "ToolError" {
		t.Errorf("got %+v, %v, want a ToolError and no error", step, err)
	}
	if text := step.Observation(); strings.Contains(text, "out of") {
		t.Errorf("the model reads what the panic said: %q", text)
	}
	for _, part := range []string{"level=ERROR", "tool=panics", "out of [redacted]s", "tool_test.go", r.ID()} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("no %q in the log: %s", part, log.String())
		}
	}
	line, _, _ := strings.Cut(audit.String(), "\n")
	type panicked struct {
		Event, Name, Panic, Stack string
		Step                      int
	}
	var event panicked
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		t.Fatalf("the audit has %q: %v", line, err)
	}
	if want := "tool_test.go"; !strings.Contains(event.Stack, want) {
		t.Errorf("the audit has the stack %q, want %q in it", event.Stack, want)
	}
	event.Stack = ""
	if want := (panicked{Event: "panic", Name: "panics", Panic: "out of [redacted]s", Step: 1}); event != want {
		t.Errorf("the audit has %+v, want %+v", event, want)
	}
	// If the client has a logger, that receives it instead.
	var own lockedBuffer
	r.log.logger = slog.New(slog.NewTextHandler(&own, nil))
	after := log.String()
	if _, err := r.Exec(t.Context(), "panics()"); err != nil || !strings.Contains(own.String(), "out of [redacted]s") || log.String() != after {
		t.Errorf("%v; its own log: %s; the default one: %s; want no error, %q in its own, and %s", err, own.String(), log.String(), "out of [redacted]s", after)
	}
	// A toolbox has no other log.
	box, err := NewToolbox(panics)
	must.Do(t, err)
	_, err = box.Call(t.Context(), "panics", nil)
	if seen, ok := errors.AsType[*ToolError](err); !ok || seen.Type != "InternalError" || strings.Contains(seen.Message, "out of") {
		t.Errorf("a toolbox: got %v, want an error without the panic", err)
	}
	for _, part := range []string{"level=ERROR", "tool=panics", "out of s3cr3ts", "tool_test.go"} {
		if added := strings.TrimPrefix(log.String(), after); !strings.Contains(added, part) {
			t.Errorf("a toolbox: no %q in the log: %s", part, added)
		}
	}
}

func TestAgentBudgets(t *testing.T) {
	t.Parallel()
	work := MustTool("work", "", func(context.Context, struct{}) (int, error) { return 1, nil })
	inner := func(ctx context.Context, task string) (string, error) {
		switch task {
		case "tokens":
			return "", SpendTokens(ctx, 11)
		case "tokens of a run":
			var rec records
			return "", rec.run(t, nil).bridge.run.SpendTokens(ctx, 11)
		case "time":
			<-ctx.Done()
			return "", ctx.Err()
		case "calls":
			var rs runs
			h := newPythonHost(t, "plain")
			r, err := rs.begin(ctx, h, "another", Params{Tools: []Tool{work}})
			if err != nil {
				return "", err
			}
			defer r.Close()
			if _, err := r.Exec(ctx, "work()\nwork()\nwork()"); err != nil {
				return "", err
			}
			return "ended", ctx.Err()
		}
		return task, nil
	}
	budget := Budget{MaxDepth: -1, MaxCalls: 2, MaxTokens: 10, Timeout: 20 * time.Second}
	helper := MustManaged("helper", "", budget, inner)
	brief := MustManaged("brief", "", Budget{Timeout: time.Millisecond}, inner)
	nested := MustManaged("nested", "", Budget{MaxDepth: -1}, func(ctx context.Context, task string) (string, error) {
		v, err := helper.call(ctx, mustValue(t, map[string]any{"task": task}))
		return string(v.Bytes()), err
	})
	var deep Tool
	deep = MustManaged("deep", "", Budget{}, func(ctx context.Context, task string) (string, error) {
		v, err := deep.call(ctx, mustValue(t, map[string]any{"task": task}))
		return string(v.Bytes()), err
	})
	for _, test := range []struct {
		agent Tool
		task  string
		fails bool
	}{{helper, "fine", false}, {helper, "tokens", true}, {helper, "tokens of a run", true}, {helper, "calls", true}, {brief, "time", true}, {nested, "x", true}, {deep, "x", true}} {
		_, err := test.agent.call(t.Context(), mustValue(t, map[string]any{"task": test.task}))
		if errors.Is(err, ErrBudget) != test.fails || err != nil != test.fails {
			t.Errorf("%s %s: got %v, want ErrBudget: %v", test.agent.Name(), test.task, err, test.fails)
		}
	}
}

func mustValue(t testing.TB, v any) state.Value {
	t.Helper()
	value, err := state.NewValue(v)
	must.Do(t, err)
	return value
}

// TestCallsGivenUp checks that code that abandons its calls over and over has no more of them
// running here than allowed.
func TestCallsGivenUp(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int32
	release := make(chan struct{})
	stuck := MustTool("stuck", "", func(context.Context, struct{}) (int, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-release // it ignores its context
		return 0, nil
	})
	r := &Run{context: &runContext{}, about: discarding}
	r.bridge, r.log = newBridge(r, []Tool{stuck}), newRunLog(r)
	ctx, cancel := context.WithCancel(t.Context())
	s := r.bridge.step(ctx, 1, func() {})
	for exchange := range 8 {
		var heads, documents []string
		for i := range 512 {
			heads = append(heads, fmt.Sprintf(`[%d,"stuck"]`, exchange*512+i))
			documents = append(documents, `{"v":1,"value":{}}`)
		}
		question := fmt.Sprintf("%s%d.{\"calls\":[%s],\"waiting\":[]}\n%s", bridgePrefix, exchange, strings.Join(heads, ","), strings.Join(documents, "\n"))
		_, err := s.input(ctx, question, false)
		must.Do(t, err)
	}
	cancel()
	close(release)
	r.bridge.work.Wait()
	if n := most.Load(); n == 0 || n > maxCalls {
		t.Errorf("%d ran at once", n)
	}
}

// TestPlacesOfCallsBecomeFree checks that a call takes no place of its tool and of the run after its
// end, whatever that was.
func TestPlacesOfCallsBecomeFree(t *testing.T) {
	t.Parallel()
	none := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
	ended := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	refuse := func(context.Context, ToolCall) error { return errors.New("no") }
	for name, tool := range map[string]Tool{
		"it returns":         MustTool("f", "", none),
		"it fails":           MustTool("f", "", func(context.Context, struct{}) (int, error) { return 0, errors.New("no") }),
		"it panics":          MustTool("f", "", func(context.Context, struct{}) (int, error) { panic("no") }),
		"it takes too long":  MustTool("f", "", func(ctx context.Context, _ struct{}) (int, error) { return 0, ended(ctx) }),
		"it is refused":      MustTool("f", "", none, WithApproval(refuse)),
		"approving panics":   MustTool("f", "", none, WithApproval(func(context.Context, ToolCall) error { panic("no") })),
		"it is given up":     MustTool("f", "", func(ctx context.Context, _ struct{}) (int, error) { return 0, ended(ctx) }),
		"approved too late":  MustTool("f", "", none, WithApproval(func(ctx context.Context, _ ToolCall) error { _ = ended(ctx); return nil })),
		"it is not its turn": MustTool("f", "", none),
		"it was called once": MustTool("f", "", none),
	} {
		tool.limits.MaxConcurrency = 1
		switch name {
		case "it takes too long":
			tool.limits.Timeout = time.Millisecond
		case "it was called once":
			tool.limits.MaxCalls = 1
		}
		r := &Run{context: &runContext{}, about: discarding}
		r.bridge, r.log = newBridge(r, []Tool{tool}), newRunLog(r)
		bound := r.bridge.tools["f"]
		if name == "it is not its turn" {
			bound.slots <- struct{}{}
		}
		arguments, err := state.NewValue(map[string]any{})
		must.Do(t, err)
		for range 3 {
			ctx, cancel := context.WithCancel(patience.Context(t))
			if name == "it is given up" || name == "approved too late" || name == "it is not its turn" {
				cancel()
			}
			if _, err := r.bridge.limited(ctx, bound, ToolCall{Tool: "f", Arguments: arguments}); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: a call never ended: %v", name, err)
			}
			cancel()
		}
		r.bridge.work.Wait()
		if name == "it is not its turn" {
			<-bound.slots
		}
		if own, all := len(bound.slots), len(r.bridge.slots); own > 0 || all > 0 {
			t.Errorf("%s: afterwards %d places of the tool and %d of the run are taken", name, own, all)
		}
	}
}

// TestGivenUpCallsEnd checks that the context of a call ends when the code no longer waits for it,
// and that of no other call.
func TestGivenUpCallsEnd(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	contexts := map[int]context.Context{}
	wait := MustTool("wait", "", func(ctx context.Context, in struct {
		N int `py:"n"`
	},
	) (int, error) {
		mu.Lock()
		contexts[in.N] = ctx
		mu.Unlock()
		<-ctx.Done()
		return 0, ctx.Err()
	})
	of := func(n int) context.Context {
		mu.Lock()
		defer mu.Unlock()
		return contexts[n]
	}
	r := &Run{context: &runContext{}, about: discarding}
	r.bridge, r.log = newBridge(r, []Tool{wait}), newRunLog(r)
	ctx, cancel := context.WithCancel(t.Context())
	defer r.bridge.work.Wait()
	defer cancel()
	s := r.bridge.step(ctx, 1, func() {})
	must.Do(t, second(s.exchange(ctx, []byte("{\"calls\":[[1,\"wait\"],[2,\"wait\"]],\"waiting\":[]}\n{\"v\":1,\"value\":{\"n\":1}}\n{\"v\":1,\"value\":{\"n\":2}}"))))
	patience.Until(t, "both calls are under way", func() bool { return of(1) != nil && of(2) != nil })
	must.Do(t, second(s.exchange(ctx, []byte(`{"calls":[],"waiting":[2]}`))))
	patience.Receive(t, "the end of the call that was given up", of(1).Done())
	if err := of(2).Err(); err != nil {
		t.Errorf("the other call ended: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestToolThatEndsAtOnce checks that a call that ended before anything waited for it has its
// result, although its context ended together with it.
func TestToolThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	quick := MustTool("quick", "", func(context.Context, struct{}) (int, error) { return 1, nil }, WithToolLimits(ToolLimits{Timeout: time.Hour}))
	r := &Run{context: &runContext{}, about: discarding}
	r.bridge, r.log = newBridge(r, []Tool{quick}), newRunLog(r)
	s := r.bridge.step(t.Context(), 1, func() {})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 2_000 {
				if _, _, err := s.made(t.Context(), "quick", []byte(`{"v":1,"value":{}}`)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	r.bridge.work.Wait()
}

// FuzzBridge sends requests that a sandbox could make up.
func FuzzBridge(f *testing.F) {
	f.Add("1.{\"calls\":[[1,\"f\"]],\"waiting\":[2]}\n{\"v\":1,\"value\":{}}")
	f.Add("1+{")
	f.Add("1?")
	f.Add("1.{\"calls\":[[-1,5],null]}")
	f.Fuzz(func(t *testing.T, question string) {
		r := &Run{context: &runContext{}, about: discarding}
		tool := MustTool("f", "", func(context.Context, struct{}) (int, error) { return 1, nil })
		r.bridge, r.log = newBridge(r, []Tool{tool}), newRunLog(r)
		ctx, cancel := context.WithCancel(t.Context())
		s := r.bridge.step(ctx, 1, func() {})
		for range 2 {
			if reply, err := s.input(ctx, bridgePrefix+question, false); err != nil {
				t.Errorf("%q, %v", reply, err)
			}
		}
		cancel()
		s.end()
		r.bridge.work.Wait()
	})
}
