//go:build linux

package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestOutOfMemory: what was killed because of the sandbox's limit says so, and
// what was killed by somebody does not.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithLimits(local.Limits{MemoryBytes: 256 << 20}))
	if enforced := cloud.Report().Memory; !strings.HasPrefix(enforced, "control group") {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal(enforced) // root's own groups are there, or something is broken
		}
		t.Skip(enforced)
	}
	sb := create(t, cloud)
	const reason = "signal: killed (out of memory: the sandbox's limit is 256 MiB)"
	const eat = `python3 -c 'x = b"x" * (1 << 29)'`
	for command, want := range map[string]string{
		eat:                      reason,
		eat + "; exit $?":        strings.Replace(reason, "signal: killed", "exit status 137", 1),
		"kill -9 $$":             "signal: killed",
		eat + " || true; exit 3": "exit status 3",
	} {
		result, err := sb.Commands.Run(t.Context(), command, nil)
		if _, failed := errors.AsType[*sandbox.ExitError](err); !failed || result.Status != want || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", command, result, err)
		}
	}
	_, err := sb.RunCode(t.Context(), `x = b"x" * (1 << 29)`, nil)
	if !errors.Is(err, sandbox.ErrKernelDied) || !strings.Contains(err.Error(), reason) {
		t.Errorf("code: %v", err)
	}
	if got := evaluate(t, sb, "6 * 7"); got != "42" {
		t.Errorf("the next kernel says %q", got)
	}
	_, err = sb.RunCode(t.Context(), "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", nil)
	if !errors.Is(err, sandbox.ErrKernelDied) || strings.Contains(err.Error(), "memory") {
		t.Errorf("a kernel that killed itself: %v", err)
	}
}
