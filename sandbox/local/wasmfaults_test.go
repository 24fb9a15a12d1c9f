//go:build linux

package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// marked returns a sandbox of WebAssembly, and the name of a directory by which signalDeno finds
// its processes.
func marked(t *testing.T, options ...local.Option) (sb *sandbox.Sandbox, mark string) {
	t.Helper()
	mark = "/marked" + strings.ReplaceAll(t.Name(), "/", "-")
	return wasm(t, append(options, local.WithMount(sandbox.Mount{Dir: t.TempDir(), Path: mark}))...), mark
}

// signalDeno sends a signal to the processes of Deno that were given a directory, and returns
// how many there are.
func signalDeno(t *testing.T, mark string, signal syscall.Signal) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Do(t, err)
	n := 0
	for _, name := range all {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte("main.mjs")) || !bytes.Contains(line, []byte(mark+"\x00")) && !bytes.Contains(line, []byte(mark+",")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && syscall.Kill(pid, signal) == nil {
			n++
		}
	}
	return n
}

// TestWasmKilled checks that code whose Deno is killed fails with ErrKernelDied, and that its
// context can be used again, without its variables. Other contexts keep theirs.
func TestWasmKilled(t *testing.T) {
	t.Parallel()
	sb, mark := marked(t)
	sandboxtest.RunCode(t, sb, "x = 1", nil)
	_, err := sb.RunCode(t.Context(), "print('begun')\nwhile True: pass", &sandbox.RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) {
		if n := signalDeno(t, mark, syscall.SIGKILL); n != 1 {
			t.Errorf("%d processes were killed, want 1", n)
		}
		return len(p), nil
	})})
	if !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("got %v, want %v", err, sandbox.ErrKernelDied)
	}
	if got := sandboxtest.RunCode(t, sb, "'x' in globals()", nil).Text(); got != "False" {
		t.Errorf("x is there: %s, want a fresh kernel", got)
	}
	// If a Deno is killed while no code runs, the next call fails and its code does not run.
	other, err := sb.Contexts.Create(t.Context(), nil)
	must.Do(t, err)
	sandboxtest.RunCode(t, sb, "x = 2", nil)
	sandboxtest.RunCode(t, sb, "x = 3", &sandbox.RunCodeParams{Context: other.ID})
	if n := signalDeno(t, mark, syscall.SIGKILL); n != 2 {
		t.Errorf("%d processes were killed, want 2", n)
	}
	for _, id := range []sandbox.ContextID{"", other.ID} {
		_, err := sb.RunCode(t.Context(), "y = 1", &sandbox.RunCodeParams{Context: id})
		if !errors.Is(err, sandbox.ErrKernelRestarted) && !errors.Is(err, sandbox.ErrKernelDied) {
			t.Errorf("context %q: got %v, want that the variables are lost", id, err)
		}
		if got := sandboxtest.RunCode(t, sb, "'x' in globals()", &sandbox.RunCodeParams{Context: id}).Text(); got != "False" {
			t.Errorf("context %q: x is there: %s, want a fresh kernel", id, got)
		}
	}
}

// TestWasmEnds checks that the error of code that ends Python says how.
func TestWasmEnds(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	for _, test := range []struct{ code, want string }{
		{"import os\nos._exit(3)", "Python has ended with the status 3"},
		{"import os\nos._exit(0)", "Python has ended with the status 0"},
		{"import os\nos.kill(os.getpid(), 9)", "Python has ended with the status 137"},
		{"import os\nos.abort()", "Python has aborted"},
		{"x = []\nfor i in range(200000): x = [x]\nx", "Python has failed: RangeError: Maximum call stack size exceeded"},
		{"import js\njs.Deno.exit(4)", "Python has ended with the status 4"},
	} {
		_, err := sb.RunCode(t.Context(), test.code, nil)
		if !errors.Is(err, sandbox.ErrKernelDied) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %v and %q", test.code, err, sandbox.ErrKernelDied, test.want)
		}
	}
}

// TestWasmHangs checks that a Deno that hangs is replaced once the caller cancels its call.
func TestWasmHangs(t *testing.T) {
	t.Parallel()
	sb, mark := marked(t)
	sandboxtest.RunCode(t, sb, "x = 1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := sb.RunCode(ctx, "print('begun')\nwhile True: pass", &sandbox.RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) {
		if n := signalDeno(t, mark, syscall.SIGSTOP); n != 1 {
			t.Errorf("%d processes were stopped, want 1", n)
		}
		cancel()
		return len(p), nil
	})})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); !errors.Is(err, sandbox.ErrKernelRestarted) {
		t.Errorf("got %v, want %v", err, sandbox.ErrKernelRestarted)
	}
	if got := sandboxtest.RunCode(t, sb, "'x' in globals()", nil).Text(); got != "False" {
		t.Errorf("x is there: %s, want a fresh kernel", got)
	}
}

// TestWasmNonsense checks that a Deno that sends anything but lines of the protocol is ended, and
// that nothing else is harmed.
func TestWasmNonsense(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	other, err := sb.Contexts.Create(t.Context(), nil)
	must.Do(t, err)
	sandboxtest.RunCode(t, sb, "x = 1", &sandbox.RunCodeParams{Context: other.ID})
	const write = "import js\ndef write(text):\n    js.Deno.stdout.writeSync(js.TextEncoder.new().encode(text))\n"
	for _, test := range []string{
		`write("no JSON\n")`,
		`write("[1]\n")`,
		`write('{"type":"no such type"}\n')`,
		`write('{"type":"reply","id":-1}\n')`,
		`write('{"type":"execute_result","content":[1]}\n')`,
		`write("\n")`,
		`write('{"type":"stream","content":{"name":"stdout","text":"' + 'x' * (1 << 16))` + "\nwhile True: write('x' * (1 << 20))", // a line without an end
	} {
		_, err := sb.RunCode(t.Context(), write+test+"\nwhile True: pass", nil)
		if !errors.Is(err, sandbox.ErrKernelDied) {
			t.Errorf("%s: got %v, want %v", test, err, sandbox.ErrKernelDied)
		}
	}
	// Code may forge its own output.
	e := sandboxtest.RunCode(t, sb, write+`write('{"type":"stream","content":{"name":"stdout","text":"forged"}}\n')`, nil)
	if e.Stdout != "forged" || e.Error != nil {
		t.Errorf("got %+v, want what was printed", e)
	}
	if got := sandboxtest.RunCode(t, sb, "x", &sandbox.RunCodeParams{Context: other.ID}).Text(); got != "1" {
		t.Errorf("another context: got %q, want 1", got)
	}
}

// TestWasmOutOfMemory checks that the error says so if the control group ends a Deno that is out
// of memory. Nothing else bounds the memory that JavaScript takes besides Python.
func TestWasmOutOfMemory(t *testing.T) {
	t.Parallel()
	sb := wasm(t, local.WithResources(local.Resources{MemoryBytes: 512 << 20}))
	sandboxtest.RunCode(t, sb, "x = 1", nil)
	_, err := sb.RunCode(t.Context(), "from pyodide.code import run_js\nrun_js('const all = []; for (;;) all.push(new Uint8Array(1 << 24).fill(1))')", nil)
	if !errors.Is(err, sandbox.ErrKernelDied) || !strings.Contains(err.Error(), "out of memory: the sandbox's limit is 512") {
		t.Errorf("got %v, want %v and why", err, sandbox.ErrKernelDied)
	}
	if got := sandboxtest.RunCode(t, sb, "'x' in globals()", nil).Text(); got != "False" {
		t.Errorf("x is there: %s, want a fresh kernel", got)
	}
}

// TestWasmDamaged checks that new kernels and sandboxes of a running cloud whose Deno was removed
// or changed fail with an error that names the setup command, and that started kernels continue.
func TestWasmDamaged(t *testing.T) { // not parallel: it sets the directory of caches
	wasmtest.Need(t)
	env, err := wasmenv.Find()
	must.Do(t, err)
	cache := t.TempDir()
	must.Do(t, os.Chmod(cache, 0o755))
	python, err := exec.LookPath("python3")
	must.Do(t, err)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("E2BCTL_PYTHON", python)
	dir := filepath.Join(cache, "e2bctl", "wasm", filepath.Base(env.Dir))
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.CopyFS(dir, os.DirFS(env.Dir))))
	cloud := sandboxtest.New(t, local.WithEngine(local.EngineWasm))
	sb := cloud.Create(t)
	sandboxtest.RunCode(t, sb, "1", nil)
	const want = "run `e2bctl local setup --engine wasm`"
	for i, damage := range []func() error{
		func() error { return os.Truncate(filepath.Join(dir, "pyodide", "python_stdlib.zip"), 1000) },
		func() error { return os.Remove(filepath.Join(dir, "main.mjs")) },
		func() error { return os.RemoveAll(dir) },
	} {
		must.Do(t, damage())
		context, err := sb.Contexts.Create(t.Context(), nil)
		if err == nil {
			_, err = sb.RunCode(t.Context(), "1", &sandbox.RunCodeParams{Context: context.ID})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("damage %d: code in a new context: got %v, want %q", i, err, want)
		}
		if _, err := sandbox.Create(t.Context(), cloud.Option()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("damage %d: a sandbox: got %v, want %q", i, err, want)
		}
		if _, err := wasmenv.Find(); !errors.Is(err, wasmenv.ErrDamaged) && !errors.Is(err, wasmenv.ErrNotSetUp) {
			t.Errorf("damage %d: found: %v, want an error", i, err)
		}
	}
	if got := sandboxtest.RunCode(t, sb, fmt.Sprint(20, "+", 22), nil).Text(); got != "42" {
		t.Errorf("got %q, want 42: what has started goes on", got)
	}
}
