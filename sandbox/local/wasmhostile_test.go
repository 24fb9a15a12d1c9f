//go:build linux

package local_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestWasmHostile checks that code that leaves WebAssembly for the JavaScript around it can do
// nothing there that Deno asks a permission for, and cannot answer in the place of a later request.
func TestWasmHostile(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	sandboxtest.RunCode(t, sb, `
import js
from pyodide.code import run_js

def attempt(source):
    try:
        return "done: %.200s" % run_js(source)
    except Exception as error:
        return str(error)`, nil)
	for _, source := range []string{
		`Deno.readTextFileSync("/etc/passwd")`,
		`Deno.readTextFileSync("/proc/self/environ")`,
		`Deno.readTextFileSync("/home/user/../../etc/hostname")`,
		`Deno.writeTextFileSync("/etc/x", "y")`,
		`Deno.env.get("HOME")`,
		`new Deno.Command("/bin/ls").outputSync()`,
		`Deno.dlopen("/lib/x86_64-linux-gnu/libc.so.6", {})`,
		`Deno.kill(1, "SIGKILL")`,
		`Deno.symlinkSync("/etc/passwd", "/home/user/l")`,
		`Deno.systemMemoryInfo()`,
		`process.getBuiltinModule("node:child_process").execSync("id")`,
		`process.getBuiltinModule("node:fs").readFileSync("/etc/passwd")`,
	} {
		if got := sandboxtest.RunCode(t, sb, "attempt('''"+source+"''')", nil).Text(); strings.HasPrefix(got, "done") || !strings.Contains(got, "NotCapable") && !strings.Contains(got, "Requires") {
			t.Errorf("%s: got %q, want that Deno refuses it", source, got)
		}
	}
	for _, source := range []string{`await fetch("http://127.0.0.1:80")`, `await Deno.connect({port: 80})`, `await import("npm:left-pad")`, `await import("data:text/javascript,1/0n")`} {
		got := sandboxtest.RunCode(t, sb, "attempt('''(async () => { "+source+" })(); 1''')\n", nil)
		if got.Error != nil {
			t.Errorf("%s: got %+v, want a promise that nobody waits for", source, got.Error)
		}
	}
	// An answer to a request that has not come, with the number that would be next.
	_, err := sb.RunCode(t.Context(), `
for number in range(1, 50):
    line = '{"type":"reply","content":{"status":"ok"},"id":%d}\n' % number
    js.Deno.stdout.writeSync(js.TextEncoder.new().encode(line))
1`, nil)
	if !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("got %v, want %v: the process broke the protocol", err, sandbox.ErrKernelDied)
	}
	if got := sandboxtest.RunCode(t, sb, "2", nil).Text(); got != "2" {
		t.Errorf("afterwards: got %q, want 2", got)
	}
}
