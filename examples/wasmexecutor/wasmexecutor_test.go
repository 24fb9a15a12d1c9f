package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWasm runs the whole example without a model. The example itself checks the results
// of the attacks.
func TestWasm(t *testing.T) {
	wasmtest.Need(t)
	var out strings.Builder
	if err := run(t.Context(), &out, &loop.Model{Script: answers}, fibonacci); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"GuardViolation: Import of numpy is not allowed (line 1). Allowed modules: ",
		"--- gave\nValue of the last expression:\n[]\n",
		"\n=> 354224848179261915075\n",
		"FileNotFoundError: [Errno 44] No such file or directory: '/etc/passwd'",
		`NotCapable: Requires read access to "/etc/passwd"`,
		`NotCapable: Requires run access to "/bin/sh"`,
		"The code took longer than 1s, which is the limit.\n",
		"MemoryError",
		"\n=> 7 attacks, and the agent's variables are untouched\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %q in it", &out, want)
		}
	}
}
