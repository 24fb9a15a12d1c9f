//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// badCode is code that a kernel survives, or that its sandbox survives.
type badCode struct {
	name, code string
	exception  string // "" is none, "died" a kernel that died
	check      func(t *testing.T, e *sandbox.Execution)
}

// run runs the code, and then some that must work.
func (c badCode) run(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	if strings.Contains(c.code, "ExceptionGroup") && sandboxtest.Eval(t, sb, "__import__('sys').version_info >= (3, 11)") == "False" {
		t.Skip("this Python has no groups of exceptions")
	}
	execution, err := sb.RunCode(t.Context(), c.code, nil)
	exception, raised := errors.AsType[*sandbox.ExecutionError](err)
	switch {
	case c.name == "a NUL" && raised:
	case c.exception == "died":
		if !errors.Is(err, sandbox.ErrKernelDied) {
			t.Errorf("got %v, want sandbox.ErrKernelDied", err)
		}
	case raised && exception.Name != c.exception, !raised && c.exception != "", err != nil && !raised:
		t.Errorf("%v", err)
	}
	if execution == nil {
		t.Fatalf("no execution: %v", err)
	}
	if c.check != nil {
		c.check(t, execution)
	}
	if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
		t.Errorf("afterwards 6 * 7 is %q, want %q", got, "42")
	}
}

// The effects of bad code are reported, and the context answers afterwards.
func TestBadCode(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		for _, c := range slices.Concat(endings, recursions, crashes, exceptions, leftovers, outputs, leavings) {
			t.Run(c.name, func(t *testing.T) { c.run(t, sb) })
		}
	})
}

// endings is code that cannot be compiled, or ends something.
var endings = []badCode{
	{"syntax", "x = = 1", "SyntaxError", func(t *testing.T, e *sandbox.Execution) {
		if e.Error.Line != 1 {
			t.Errorf("line %d, want 1", e.Error.Line)
		}
	}},
	{"indentation", "if True:\nx = 1", "IndentationError", nil},
	{"a NUL", "x = '\x00'", "", nil}, // the result depends on the version of Python
	{"exit", "import sys; sys.exit(3)", "SystemExit", nil},
	{"exit of the process", "import os; os._exit(3)", "died", nil},
	{"exit in a thread", "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", "", nil},
}

// recursions is code that calls itself without end.
var recursions = []badCode{
	{"recursion", "def f(n): return f(n + 1)\nf(0)", "RecursionError", func(t *testing.T, e *sandbox.Execution) {
		if e.Error.Line == 0 || !strings.Contains(e.Error.Traceback, "frames are left out") || len(e.Error.Traceback) > 64<<10 {
			t.Errorf("line %d, a traceback of %d bytes: %.2000s", e.Error.Line, len(e.Error.Traceback), e.Error.Traceback)
		}
	}},
	{"recursion behind an exception", "try: f(0)\nexcept RecursionError: raise ValueError('after it')", "ValueError", func(t *testing.T, e *sandbox.Execution) {
		if trace := e.Error.Traceback; !strings.Contains(trace, "RecursionError") || !strings.Contains(trace, "frames are left out") || e.Error.Line != 2 {
			t.Errorf("line %d of %.2000s, want line 2, %q and %q", e.Error.Line, trace, "RecursionError", "frames are left out")
		}
	}},
	{"recursion in a repr", "class A:\n    def __repr__(self): return repr(self)\nA()", "RecursionError", nil},
	{"recursion in C", "x = []\nfor _ in range(100_000): x = [x]\nrepr(x)", "RecursionError", nil},
}

// crashes is code that ends its kernel, or takes its socket.
var crashes = []badCode{
	{"a crash", "import ctypes; ctypes.string_at(0)", "died", func(t *testing.T, e *sandbox.Execution) {
		if want := "Segmentation fault"; !strings.Contains(e.Stderr, want) {
			t.Errorf("stderr %q, want %q in it", e.Stderr, want)
		}
	}},
	{"ended by a signal", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "died", nil},
	{"its socket closed", "import os; os.close(3); f = open('/tmp/x', 'w')", "died", nil},
}

// exceptions is code that raises exceptions that are hard to print.
var exceptions = []badCode{
	{"a group of exceptions", "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])", "ExceptionGroup", func(t *testing.T, e *sandbox.Execution) {
		if !strings.Contains(e.Error.Value, "two") || !strings.Contains(e.Error.Traceback, "TypeError: 2") {
			t.Errorf("got %q %s, want %q in it and %q in it", e.Error.Value, e.Error.Traceback, "two", "TypeError: 2")
		}
	}},
	{"behind a group", "try: raise ExceptionGroup('two', [ValueError(1)])\nfinally: raise KeyError(2) from None", "KeyError", func(t *testing.T, e *sandbox.Execution) {
		if e.Stderr != "" {
			t.Errorf("stderr %q, want nothing", e.Stderr)
		}
	}},
	{"a repr that raises", "class A:\n    def __repr__(self): raise KeyError('none')\nA()", "KeyError", nil},
	{"a repr that exits", "class A:\n    def __repr__(self): raise SystemExit(3)\nA()", "SystemExit", nil},
	{"an exception without words", "class E(Exception):\n    def __str__(self): 1/0\nraise E", "E", nil},
}

// leftovers is code that continues in the background, or changes the interpreter for later code.
var leftovers = []badCode{
	{"tasks that go on", "import asyncio\nleft = asyncio.ensure_future(asyncio.sleep(3600))\nawait asyncio.sleep(0)", "", nil},
	{"a thread that goes on", "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()", "", nil},
	{"work for the exit", "import atexit, time\n_ = atexit.register(time.sleep, 3600)", "", nil},
	{"modules forgotten", "import sys; sys.modules.clear()", "", nil},
	{"modules forgotten and needed", "import sys; sys.modules.clear(); 1/0", "ZeroDivisionError", nil},
	// Since Python 3.12, the import fails.
	{"modules forgotten and imported", "import sys; sys.modules.clear()\ntry:\n    import json; json.dumps(1)\nexcept AttributeError: pass", "", nil},
	{"the main module forgotten", "import sys; del sys.modules['__main__']", "", nil},
	{"globals cleared", "globals().clear()", "", nil},
	{"a class afterwards", "class A: pass\nif str(A) != \"<class '__main__.A'>\": raise ValueError(A)", "", nil},
	{"imports afterwards", "import json, decimal; json.dumps([1])", "", nil},
	{"garbage", "import gc\ngc.disable(); gc.set_threshold(1)\nfor o in gc.get_objects():\n    if type(o).__name__ == 'socket': o.close()", "", nil},
	{"a tracer that raises", "import sys\nsys.settrace(lambda *_: 1/0)\n(lambda: 1)()", "ZeroDivisionError", nil},
	{"an alarm that raises", "import signal, time\n_ = signal.signal(signal.SIGALRM, lambda *_: 1/0); signal.setitimer(signal.ITIMER_REAL, .01)\ntime.sleep(60)", "ZeroDivisionError", nil},
}

// outputs is code that changes its output, or prints much.
var outputs = []badCode{
	{"another stdout", "import io, sys\nsys.stdout, sys.stderr = io.StringIO(), None\nprint('not here')", "", func(t *testing.T, e *sandbox.Execution) {
		if e.Stdout != "" {
			t.Errorf("printed %q, want nothing", e.Stdout)
		}
	}},
	{"stdout again", "sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__\nprint('here')", "", func(t *testing.T, e *sandbox.Execution) {
		if e.Stdout != "here\n" {
			t.Errorf("printed %q, want %q", e.Stdout, "here\n")
		}
	}},
	{"stdout closed", "import sys; keep = sys.stdout; sys.stdout.close() if hasattr(keep, 'closed') else None", "", nil},
	{"its temporary directory removed", "import shutil, tempfile; shutil.rmtree(tempfile.gettempdir(), ignore_errors=True); 1", "", nil},
	{"not UTF-8", "import os; os.write(1, b'a\\xff\\xfeb\\n')", "", func(t *testing.T, e *sandbox.Execution) {
		if !strings.HasPrefix(e.Stdout, "a\uFFFD") || !strings.HasSuffix(e.Stdout, "b\n") {
			t.Errorf("printed %q, want %q at its start and %q at its end", e.Stdout, "a\uFFFD", "b\n")
		}
	}},
	{"much output", "for _ in range(16): print('x' * ((1 << 20) - 1))", "", func(t *testing.T, e *sandbox.Execution) {
		if len(e.Stdout) > sandbox.DefaultMaxOutputBytes+256 || e.StdoutDropped != 15<<20 || !e.Truncated() {
			t.Errorf("%d bytes kept, %d dropped, want at most %d and %d, and that it says so", len(e.Stdout), e.StdoutDropped, sandbox.DefaultMaxOutputBytes+256, 15<<20)
		}
	}},
	{"many prints", "for i in range(1_000_000): print(i)", "", func(t *testing.T, e *sandbox.Execution) {
		const all = 6_888_890
		kept, notice := len(e.Stdout), 256
		if sum := int64(kept) + e.StdoutDropped; sum < all || sum > all+int64(notice) {
			t.Errorf("%d bytes kept, %d dropped, want %d together", kept, e.StdoutDropped, all)
		}
		if !strings.HasPrefix(e.Stdout, "0\n1\n") || !strings.HasSuffix(e.Stdout, "\n999999\n") {
			t.Errorf("got %.20q … %q, want the first and the last lines", e.Stdout, e.Stdout[max(0, kept-20):])
		}
	}},
	{"a large result", "'x' * (4 << 20)", "", func(t *testing.T, e *sandbox.Execution) {
		if n := len(e.Text()); n != 4<<20 {
			t.Errorf("%d bytes, want %d", n, 4<<20)
		}
	}},
}

// leavings is code that asks for input that does not come, or takes away something that its
// kernel needs.
var leavings = []badCode{
	{"input without a handler", "input()", "StdinNotImplementedError", nil},
	{"interrupt of itself", "raise KeyboardInterrupt", "KeyboardInterrupt", nil},
	{"builtins deleted", "import builtins; printing = print; del builtins.print, __builtins__", "", nil},
	{"builtins back", "builtins.print = printing; print(1)", "", nil},
	// This one is last: commands that this kernel starts afterwards have nowhere
	// to write to.
	{"descriptors closed", "import os, sys\nos.close(1); os.close(2); sys.stdout.write('on')\nNone", "", func(t *testing.T, e *sandbox.Execution) {
		if e.Stdout != "on" {
			t.Errorf("printed %q, want %q", e.Stdout, "on")
		}
	}},
}

func TestBadRequests(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		for name, tt := range map[string]struct {
			params sandbox.RunCodeParams
			class  error
		}{
			"an unknown context":    {sandbox.RunCodeParams{Context: "00000000-0000-4000-8000-000000000000"}, api.ErrNotFound},
			"a context of no form":  {sandbox.RunCodeParams{Context: "../x"}, api.ErrNotFound},
			"an unknown language":   {sandbox.RunCodeParams{Language: "cobol"}, sandbox.ErrUnknownLanguage},
			"language and context":  {sandbox.RunCodeParams{Language: "python", Context: "x"}, api.ErrInvalidArgument},
			"a name that is no env": {sandbox.RunCodeParams{Envs: map[string]string{"A=B": "x"}}, api.ErrInvalidArgument},
		} {
			execution, err := sb.RunCode(t.Context(), "1", &tt.params)
			if !errors.Is(err, tt.class) || execution != nil {
				t.Errorf("%s: got %+v, %v, want %v and no execution", name, execution, err, tt.class)
			}
			if name == "an unknown language" && !strings.Contains(err.Error(), "cobol") {
				t.Errorf("it does not name the language: %v", err)
			}
		}
		if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
			t.Errorf("afterwards: %q, want %q", got, "42")
		}
	})
}

// The next call reports the end of an idle kernel.
func TestKernelRestartedBetweenCalls(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t)
	pid := sandboxtest.Eval(t, sb, "x = 1; import os; os.getpid()")
	other, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option())
	must.Do(t, err)
	defer other.Close()
	contexts, err := other.Contexts.List(t.Context())
	if err != nil || len(contexts) == 0 {
		t.Fatalf("got %v %v, want some contexts and no error", contexts, err)
	}
	for how, restart := range map[string]func() error{
		"restarted": func() error { return other.Contexts.Restart(t.Context(), contexts[0].ID) },
		"killed": func() error {
			_, err := other.Commands.Run(t.Context(), "kill -9 "+pid, &sandbox.CommandParams{User: "root"})
			return err
		},
	} {
		pid = sandboxtest.Eval(t, sb, "x = 1; import os; os.getpid()")
		if err := restart(); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		var told error
		patience.Until(t, how+" is told", func() bool {
			_, told = sb.RunCode(t.Context(), "x", nil)
			return told != nil
		})
		if !errors.Is(told, sandbox.ErrKernelRestarted) && !errors.Is(told, sandbox.ErrKernelDied) && !isException(told, "NameError") {
			t.Errorf("%s: got %v, want ErrKernelRestarted, ErrKernelDied or NameError", how, told)
		}
		// At most one report is pending.
		_, _ = sb.RunCode(t.Context(), "x = 2", nil)
		if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
			t.Errorf("%s: afterwards %q, want %q", how, got, "42")
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	began := make(chan struct{})
	var once sync.Once
	interrupted := make(chan error, 1)
	go func() {
		<-began
		interrupted <- sb.Contexts.Interrupt(t.Context(), "")
	}()
	_, err := sb.RunCode(t.Context(), "print('begun', flush=True)\nwhile True: pass", &sandbox.RunCodeParams{Stdout: whenWritten{func() { once.Do(func() { close(began) }) }}})
	if !isException(err, "KeyboardInterrupt") {
		t.Errorf("got %v, want the Python exception KeyboardInterrupt", err)
	}
	if err := <-interrupted; err != nil {
		t.Error(err)
	}
	http := shared(t).Create(t, sandbox.WithCodeTransport(sandbox.CodeTransportHTTP))
	for name, call := range map[string]func() error{
		"interrupt": func() error { return http.Contexts.Interrupt(t.Context(), "") },
		"silent": func() error {
			_, err := http.RunCode(t.Context(), "1", &sandbox.RunCodeParams{Silent: true})
			return err
		},
		"without history": func() error {
			_, err := http.RunCode(t.Context(), "1", &sandbox.RunCodeParams{NoHistory: true})
			return err
		},
		"a run": func() error {
			_, err := agent.Begin(t.Context(), http, nil)
			return err
		},
	} {
		if err := call(); !errors.Is(err, sandbox.ErrNeedsWebsocket) {
			t.Errorf("%s over HTTP: %v, want sandbox.ErrNeedsWebsocket", name, err)
		}
	}
}

// StreamCode yields the parts of RunCode's result, in order, over either transport.
func TestStreamCode(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		const code = `import sys
print('one', flush=True)
print('two', file=sys.stderr, flush=True)
from IPython.display import display
display({'text/plain': 'shown'}, raw=True)
40 + 2`
		var got []string
		for event, err := range sb.StreamCode(t.Context(), code, nil) {
			if err != nil {
				if isException(err, "ModuleNotFoundError") {
					t.Skip("the sandboxes' Python has no IPython")
				}
				t.Fatal(err)
			}
			switch e := event.(type) {
			case sandbox.OutputEvent:
				got = append(got, string(e.Stream)+" "+strings.TrimSpace(e.Text))
			case sandbox.DisplayEvent:
				got = append(got, "display "+e.Text())
			case sandbox.ResultEvent:
				got = append(got, "result "+e.Text())
			case sandbox.StatusEvent:
				got = append(got, string(e.State))
			case sandbox.EndEvent:
				timing := e.Execution.Timing
				got = append(got, fmt.Sprintf("end %s %v", e.Execution.Text(), timing.Started.After(timing.Asked) && timing.Ran() > 0))
			}
		}
		want := "busy, stdout one, stderr two, display shown, result 42, idle, end 42 true"
		if all := strings.Join(got, ", "); all != want {
			t.Errorf("got  %s\nwant %s", all, want)
		}
		// Leaving the loop interrupts the code.
		sandboxtest.Eval(t, sb, "x = 41")
		for event := range sb.StreamCode(t.Context(), "print('begun', flush=True)\nwhile True: pass", nil) {
			if _, ok := event.(sandbox.OutputEvent); ok {
				break
			}
		}
		if got := sandboxtest.Eval(t, sb, "x + 1"); got != "42" {
			t.Errorf("after a loop that was left: %q, want %q", got, "42")
		}
	})
}

// Nothing is skipped after an error.
func TestErrorThenRun(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	pairs := 100
	if os.Getenv("SOAK") != "" {
		pairs = 1000
	}
	sandboxtest.Eval(t, sb, "n = 0")
	for i := range pairs {
		if _, err := sb.RunCode(t.Context(), "1/0", nil); !isException(err, "ZeroDivisionError") {
			t.Fatalf("%d: got %v, want the Python exception ZeroDivisionError", i, err)
		}
		if got := sandboxtest.Eval(t, sb, "n += 1; n"); got != fmt.Sprint(i+1) {
			t.Fatalf("%d: n is %s, want %s", i, got, fmt.Sprint(i+1))
		}
	}
}

// Two handles use one kernel, each with two calls under way. They take turns,
// and each sees only its own output.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	apart := cloud.Create(t) // another sandbox: it has nothing of this one
	sandboxtest.Eval(t, apart, "n = 'theirs'")
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			way := sandbox.WithCodeTransport(transport)
			sb := cloud.Create(t, way)
			other, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option(), way)
			must.Do(t, err)
			defer other.Close()
			sandboxtest.Eval(t, sb, "n = 0")
			var clients sync.WaitGroup
			for c, handle := range []*sandbox.Sandbox{sb, other, sb, other} {
				clients.Go(func() {
					for i := range 20 {
						want := fmt.Sprintf("%d-%d\n", c, i)
						code := fmt.Sprintf("print('%d-%d'); n += 1", c, i)
						if i%2 == 1 {
							code += "\n1/0"
						}
						execution, err := handle.RunCode(t.Context(), code, nil)
						if isException(err, "ZeroDivisionError") != (i%2 == 1) || execution == nil || execution.Stdout != want {
							t.Errorf("got %+v, %v, want stdout %q and ZeroDivisionError: %v", execution, err, want, i%2 == 1)
						}
					}
				})
			}
			clients.Wait()
			if got := sandboxtest.Eval(t, other, "n"); got != "80" {
				t.Errorf("%s of 80 ran, want all", got)
			}
		})
	}
}

// A result that is too large for a message is left out, and the execution reports it.
func TestLargeResult(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		execution, err := sb.RunCode(t.Context(), "'x' * (64 << 20)", nil)
		must.Do(t, err)
		if n := len(execution.Text()); n != 64<<20 && (n != 0 || !strings.Contains(execution.Stderr, "left out")) {
			t.Errorf("%d bytes, and stderr says %q", n, execution.Stderr)
		}
		if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
			t.Errorf("afterwards: %q, want %q", got, "42")
		}
	})
}
