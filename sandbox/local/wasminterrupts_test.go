//go:build linux

package local_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestWasmHeedless checks that code which heeds no interrupt is ended by a later one, whichever
// way these are sent, and that both the call and the next one report that the variables are lost.
func TestWasmHeedless(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, wasmOptions(t)...)
	for _, test := range []struct {
		transport sandbox.CodeTransport
		code      string
	}{
		{sandbox.CodeTransportWebsocket, "while True:\n    try:\n        while True: pass\n    except BaseException: pass"},
		{sandbox.CodeTransportHTTP, "sys.stdout.flush()\nrun_js('for (;;);')"},
	} {
		sb := cloud.Create(t, sandbox.WithCodeTransport(test.transport))
		sandboxtest.RunCode(t, sb, "x = 1\nimport sys\nfrom pyodide.code import run_js", nil) // an interrupt in the middle of an import is heeded
		if err := cutOff(t, sb, test.code); !strings.Contains(err.Error(), "variables are lost") {
			t.Errorf("%s: got %v, want that the variables may be lost", test.code, err)
		}
		// Over HTTP there is no report about earlier code.
		_, err := sb.RunCode(t.Context(), "y = 1", nil)
		if test.transport == sandbox.CodeTransportWebsocket && (!errors.Is(err, sandbox.ErrKernelRestarted) || !strings.Contains(err.Error(), "nothing else stops code")) {
			t.Errorf("%s: the next call: got %v, want %v and why", test.code, err, sandbox.ErrKernelRestarted)
		}
		if got := sandboxtest.RunCode(t, sb, "'x' in globals()", nil).Text(); got != "False" {
			t.Errorf("%s: x is there: %s, want a fresh kernel", test.code, got)
		}
	}
}
