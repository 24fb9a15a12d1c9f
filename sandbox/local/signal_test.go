//go:build linux

package local_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestSignalOfCommand checks that a result has the signal that ended the command, also
// when it ran out of memory, where the machine enforces that limit.
func TestSignalOfCommand(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithResources(local.Resources{MemoryBytes: 512 << 20}))
	sb := cloud.Create(t)
	tests := map[string]int{"exit 3": 0, "kill -SEGV $$": 11, "kill -XFSZ $$": 25, "kill -SYS $$": 31}
	const eat = `python3 -c 'x = b"x" * (1 << 30)'`
	if strings.HasPrefix(cloud.Report().Memory, "control group") {
		tests[eat] = 9
	}
	for command, want := range tests {
		result, err := sb.Commands.Run(t.Context(), "ulimit -c 0; exec bash -c '"+strings.ReplaceAll(command, "'", `'\''`)+"'", nil)
		if _, failed := errors.AsType[*sandbox.ExitError](err); !failed || result.Signal != want {
			t.Errorf("%s: %+v, %v, want signal %d", command, result, err, want)
		}
		if command == eat && !strings.Contains(result.Status, "out of memory") {
			t.Errorf("%s: %q, want the reason", command, result.Status)
		}
	}
}
