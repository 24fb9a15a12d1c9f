//go:build linux

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// A machine whose Python has no IPython can run code as well, with only the
// standard library, and over both transports.
func TestWithoutIPython(t *testing.T) { // not in parallel: it sets an environment variable of the process
	const system = "/usr/bin/python3"
	if exec.CommandContext(t.Context(), system, "-c", "import IPython").Run() == nil || exec.CommandContext(t.Context(), system, "-c", "").Run() != nil {
		t.Skipf("%s is none without IPython", system)
	}
	t.Setenv("E2BCTL_PYTHON", system)
	cloud := sandboxtest.New(t)
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			sb := cloud.Create(t, sandbox.WithCodeTransport(transport))
			for code, want := range map[string]string{
				"raise ExceptionGroup('two', [ValueError(1), TypeError(2)]) if 'ExceptionGroup' in dir(__builtins__) else TypeError(2)": "TypeError: 2",
				"%time 1":  "SyntaxError",
				"!ls":      "SyntaxError",
				"1 +":      "SyntaxError",
				"x = 1\nf": "NameError: name 'f' is not defined",
				"exit()":   "SystemExit",
				"input()":  "StdinNotImplementedError",
			} {
				execution, err := sb.RunCode(t.Context(), code, nil)
				if err == nil || execution == nil || execution.Error == nil {
					t.Errorf("%s: got %+v, %v, want a Python error", code, execution, err)
					continue
				}
				if e := execution.Error; !strings.Contains(e.Traceback+e.Name, want) {
					t.Errorf("%s: got %s: %q, want %q in it", code, e.Name, e.Traceback, want)
				}
			}
			if got, want := sandboxtest.Eval(t, sb, "import os, sys; os.system('echo out'); print(x); (x, sys.executable)"), "(1, '"+system+"')"; got != want {
				t.Errorf("afterwards: %s, want %s", got, want)
			}
		})
	}
}
