//go:build linux

package local_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// wasmOptions are those of a cloud of WebAssembly.
func wasmOptions(t *testing.T) []local.Option {
	t.Helper()
	wasmtest.Need(t)
	return []local.Option{local.WithEngine(local.EngineWasm)}
}

// wasm returns a sandbox of WebAssembly.
func wasm(t *testing.T, options ...local.Option) *sandbox.Sandbox {
	t.Helper()
	return sandboxtest.New(t, append(options, wasmOptions(t)...)...).Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
}

// TestWasm runs code with the SDK.
func TestWasm(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	if got := sandboxtest.RunCode(t, sb, "1+1", nil).Text(); got != "2" {
		t.Errorf("got %q, want 2", got)
	}
	for _, test := range []struct{ code, text, stdout, stderr, failure string }{
		{code: "x = 6\nx * 7", text: "42"},
		{code: "x", text: "6"},
		{code: "print('out')\nimport sys\nprint('err', file=sys.stderr)\nsys.platform", text: "emscripten", stdout: "out\n", stderr: "err\n"},
		{code: "import os\nos.environ['GREETING'], os.getcwd(), os.environ['HOME']", text: "('hello', '/home/user', '/home/user')"},
		{code: "def f():\n    return 1 / 0\nf()", failure: "ZeroDivisionError"},
		{code: "for", failure: "SyntaxError"},
		{code: "def r(): r()\nr()", failure: "RecursionError"},
		{code: "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.01)\n    return n\nsum(await asyncio.gather(*map(f, range(5))))", text: "10"},
		{code: "asyncio.run(f(3))", text: "3"},
		{code: "task = asyncio.create_task(f(9))\nasyncio.get_running_loop().is_running()", text: "True", stderr: "tasks of asyncio are left: in WebAssembly they go on only while a cell awaits, so await them\n"},
		{code: "task.done()", text: "False"},
		{code: "await task", text: "9"},
		{code: "import js\nawait js.Promise.new(lambda keep, fail: js.setTimeout(keep, 10, 4))", text: "4"},
		{code: "async def g():\n    return await asyncio.wait_for(js.Promise.resolve(5), 60)\nasyncio.run(g())", text: "5"},
		{code: "await asyncio.wait_for(js.Promise.new(lambda keep, fail: None), 0.01)", failure: "TimeoutError"},
		{code: "await js.fetch('http://192.0.2.1/')", failure: "JsException"},
		{code: "from pyodide.ffi import run_sync\nawait asyncio.sleep(0)\nrun_sync(f(6))", text: "6"},
		{code: "js.eval('(f) => f()')(lambda: asyncio.run(f(7)))", text: "7"},
		{code: "late = js.eval('() => { throw new Error(\"late\") }')\nt = js.setTimeout(late, 1)\nawait js.Promise.new(lambda keep, fail: js.setTimeout(keep, 20, 8))", text: "8", stderr: "Error: late\n"},
		{code: "import time\nt = time.monotonic()\ntime.sleep(0.05)\ntime.monotonic() - t >= 0.05", text: "True"},
		{code: "import threading\nthreading.Thread(target=print).start()", failure: "RuntimeError"},
		{code: "import subprocess\nsubprocess.run(['ls'])", failure: "OSError"},
		{code: "os.system('id')", failure: "OSError"},
		{code: "import posix\nposix.system('id')", failure: "OSError"},
		{code: "os.popen('id')", failure: "OSError"},
		{code: "os.fork()", failure: "OSError"},
		{code: "os.execv('/bin/ls', ['ls'])", failure: "OSError"},
		{code: "os.execlp('ls', 'ls')", failure: "OSError"},
		{code: "os.spawnlp(os.P_WAIT, 'ls', 'ls')", failure: "OSError"},
		{code: "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)", failure: "OSError"},
		{code: "os.symlink('/etc/passwd', 'link')", failure: "PermissionError"},
		{code: "open('/etc/passwd')", failure: "FileNotFoundError"},
		{code: "for i in range(20000): print(i)", stdout: "0\n1\n"},
		{code: "'ä\\u20ac\\U0001f600'", text: "ä€😀"},
	} {
		e := sandboxtest.RunCode(t, sb, test.code, nil)
		failure := ""
		if e.Error != nil {
			failure = e.Error.Name
		}
		if e.Text() != test.text || !strings.HasPrefix(e.Stdout, test.stdout) || e.Stderr != test.stderr || failure != test.failure {
			t.Errorf("%s: got %q, stdout %.100q, stderr %q, error %v, want %+v", test.code, e.Text(), e.Stdout, e.Stderr, e.Error, test)
		}
	}
	if e := sandboxtest.RunCode(t, sb, "def f():\n    return 1 / 0\nf()", nil); e.Error == nil || e.Error.Line != 2 || !strings.Contains(e.Error.Traceback, "line 2, in f") || strings.Contains(e.Error.Traceback, "_e2bctl") {
		t.Errorf("got %+v, want a traceback of the cell and no more", e.Error)
	}
}

// TestWasmResults checks the formats in which values display themselves.
func TestWasmResults(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	e := sandboxtest.RunCode(t, sb, `
class V:
    def __repr__(self): return "V()"
    def _repr_html_(self): return "<b>V</b>"
    def _repr_png_(self): return b"\x89PNG"
    def _repr_svg_(self): raise ValueError("none")
display(V(), 3)
{"a": [1, None]}`, nil)
	if len(e.Results) != 3 {
		t.Fatalf("got %+v, want three results", e.Results)
	}
	png := e.Results[0].PNG()
	if e.Results[0].HTML() != "<b>V</b>" || string(png) != "\x89PNG" || e.Results[0].Text() != "V()" || e.Results[0].Main {
		t.Errorf("got %+v, want HTML, a picture and text", e.Results[0])
	}
	if got := string(e.Results[2].Data["application/json"]); got != `{"a":[1,null]}` || !e.Results[2].Main {
		t.Errorf("got %+v, want JSON", e.Results[2])
	}
	if !strings.Contains(e.Stderr, "_repr_svg_ of V failed: ValueError: none") {
		t.Errorf("got stderr %q, want what failed", e.Stderr)
	}
}

// TestWasmStreams checks that output comes while code runs, that code is answered when it
// asks, and that an interrupt ends a loop, a sleep and a question, with the variables kept.
func TestWasmStreams(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	sandboxtest.RunCode(t, sb, "x = 1", nil)
	for _, loop := range []string{"while True: pass", "import time; time.sleep(3600)", "import asyncio; await asyncio.sleep(3600)", "import asyncio; await asyncio.Future()", "import js; await js.Promise.new(lambda keep, fail: None)"} {
		err := cutOff(t, sb, loop)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want that it was cancelled", loop, err)
		}
		if got := sandboxtest.RunCode(t, sb, "x", nil).Text(); got != "1" {
			t.Errorf("after %s: x is %q, want 1: the interrupt keeps the variables", loop, got)
		}
	}
	asked := &sandbox.RunCodeParams{Stdin: func(_ context.Context, prompt string, password bool) (string, error) {
		return prompt + "yes", nil
	}}
	if got := sandboxtest.RunCode(t, sb, "input('sure? ')", asked).Text(); got != "sure? yes" {
		t.Errorf("got %q, want the answer", got)
	}
}

// cutOff runs code, cancels the call once the code prints, and returns the error of the call.
func cutOff(t *testing.T, sb *sandbox.Sandbox, code string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := sb.RunCode(ctx, "print('begun')\n"+code, &sandbox.RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})})
	return err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestWasmSignals checks that no signal to Python is lost: neither one that comes while Python
// looks for others, nor one that was for an earlier cell.
func TestWasmSignals(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	const waitForSignals = "import sys\noutput = sys.stdout._output\nfor i in range(300):\n    print(i)\n    while output.scheduled: pass"
	if e := sandboxtest.RunCode(t, sb, waitForSignals, nil); e.Error != nil || !strings.HasSuffix(e.Stdout, "\n299\n") {
		t.Errorf("got %+v, want what was printed", e)
	}
	for range 20 {
		sandboxtest.RunCode(t, sb, "print('before its end')", nil)
		if got := sandboxtest.RunCode(t, sb, "output.scheduled", nil).Text(); got != "False" {
			t.Fatalf("after a cell that printed, scheduled is %s, want False: the next one would print nothing while it runs", got)
		}
	}
}

// TestWasmContexts checks that contexts have variables of their own and share files, with the
// client and across a snapshot.
func TestWasmContexts(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	must.Do(t, sb.Files.Write(t.Context(), "data/in.txt", []byte("six"), nil))
	other, err := sb.Contexts.Create(t.Context(), nil)
	must.Do(t, err)
	sandboxtest.RunCode(t, sb, "x = open('data/in.txt').read()\nopen('/home/user/out.txt', 'w').write(x * 2)", nil)
	e := sandboxtest.RunCode(t, sb, "import os\nopen('out.txt').read(), 'x' in globals(), os.path.getsize('out.txt')", &sandbox.RunCodeParams{Context: other.ID})
	if got := e.Text(); got != "('sixsix', False, 6)" {
		t.Errorf("got %s, want the file and not the variable", got)
	}
	if got, err := sb.Files.Read(t.Context(), "out.txt", nil); err != nil || string(got) != "sixsix" {
		t.Errorf("got %q, %v, want what code wrote", got, err)
	}
	if _, err := sb.RunCode(t.Context(), "1", &sandbox.RunCodeParams{Language: "javascript"}); !errors.Is(err, sandbox.ErrUnknownLanguage) {
		t.Errorf("another language: got %v, want %v", err, sandbox.ErrUnknownLanguage)
	}
}

// TestWasmMissingModule checks that the advice about a module that is not there is one that helps.
func TestWasmMissingModule(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	for module, name := range map[string]string{"matplotlib": "matplotlib", "sklearn": "scikit-learn"} {
		e := sandboxtest.RunCode(t, sb, "import "+module, nil)
		if e.Error == nil {
			t.Errorf("import %s: no error", module)
			continue
		}
		helps := strings.Contains(e.Error.Value, "--pyodide-dist") && strings.Contains(e.Error.Value, "add "+name)
		if !helps || strings.Contains(e.Error.Value, "local setup") || strings.Contains(e.Error.Value, "pip install") {
			t.Errorf("import %s: got %+v, want what helps in WebAssembly", module, e.Error)
		}
	}
}

// TestWasmRefuses checks that calls that need processes are refused by name.
func TestWasmRefuses(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	const want = "not supported by the wasm engine"
	if _, err := sb.Commands.Run(t.Context(), "ls", nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a command: got %v, want %q", err, want)
	}
	if _, err := sb.PTY.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a terminal: got %v, want %q", err, want)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.URL(3000), nil)
	must.Do(t, err)
	answer, err := (&http.Client{Transport: sb.Transport(3000)}).Do(request)
	if err == nil {
		answer.Body.Close()
	}
	if !errors.Is(err, sandbox.ErrPortClosed) || !strings.Contains(err.Error(), "without processes") {
		t.Errorf("a port: got %v, want %v and the reason", err, sandbox.ErrPortClosed)
	}
}

// TestWasmFaults checks that a kernel that runs out of memory keeps its variables, that one
// that cannot be interrupted is replaced, and that its end is told.
func TestWasmFaults(t *testing.T) {
	t.Parallel()
	sb := wasm(t, local.WithResources(local.Resources{MemoryBytes: 512 << 20}))
	sandboxtest.RunCode(t, sb, "x = 1", nil)
	if e := sandboxtest.RunCode(t, sb, "y = bytearray(1 << 30)", nil); e.Error == nil || e.Error.Name != "MemoryError" {
		t.Errorf("got %+v, want a MemoryError", e.Error)
	}
	if e := sandboxtest.RunCode(t, sb, "y = []\nwhile True: y.append(bytearray(1 << 20))", nil); e.Error == nil || e.Error.Name != "MemoryError" {
		t.Errorf("got %+v, want a MemoryError", e.Error)
	}
	if got := sandboxtest.RunCode(t, sb, "x", nil).Text(); got != "1" {
		t.Errorf("x is %q, want 1: lack of memory keeps the variables", got)
	}
	if err := cutOff(t, sb, "while True:\n    try:\n        while True: pass\n    except BaseException: pass"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cut off", err)
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); !errors.Is(err, sandbox.ErrKernelRestarted) {
		t.Errorf("got %v, want %v", err, sandbox.ErrKernelRestarted)
	}
	if got := sandboxtest.RunCode(t, sb, "2", nil).Text(); got != "2" {
		t.Errorf("got %q, want 2", got)
	}
	for _, end := range []string{"import js; js.process.exit(3)", "import js; js.Deno.exit(0)", "import js; js.close()", "import js; js.Deno.stdout.writeSync(js.Uint8Array.new([110, 111, 10]))\nwhile True: pass"} {
		if _, err := sb.RunCode(t.Context(), end, nil); err == nil {
			t.Errorf("%s: got no error, want that the kernel ended", end)
		}
	}
	if got := sandboxtest.RunCode(t, sb, "3", nil).Text(); got != "3" {
		t.Errorf("got %q, want 3", got)
	}
}

// TestWasmTemplate checks that one cloud has both kinds of sandboxes, whichever is its own, and
// that nothing is built where there are no commands.
func TestWasmTemplate(t *testing.T) {
	t.Parallel()
	options := wasmOptions(t)
	for _, own := range []local.Engine{local.EngineRoom, local.EngineWasm} {
		cloud := sandboxtest.New(t, append(options, local.WithEngine(own))...)
		for name, want := range map[string]string{"base-room": "linux", "base-wasm": "emscripten"} {
			if got := sandboxtest.RunCode(t, cloud.Create(t, sandbox.WithTemplate(name)), "import sys; sys.platform", nil).Text(); got != want {
				t.Errorf("%s in a cloud of %s: got %q, want %q", name, own, got, want)
			}
		}
		client, err := sandbox.NewClient(cloud.Option())
		must.Do(t, err)
		defer client.Close()
		if _, err := template.Build(t.Context(), client.Templates, "made", template.FromTemplate("base-wasm").Run("true", nil), nil); err == nil || !strings.Contains(err.Error(), "no processes") {
			t.Errorf("a build: got %v, want why there is none", err)
		}
	}
}
