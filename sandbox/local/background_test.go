//go:build linux

package local_test

import (
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCommandLeavesServer checks that a command that leaves a server running in the
// background, which still holds its output, ends and says so, and that the server
// answers, even after it has printed more than a pipe holds.
func TestCommandLeavesServer(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	const server = `mkfifo go answer; (read word <go; if head -c 300000 /dev/zero; then echo alive >answer; fi; exec sleep 600)`
	result, err := sb.Commands.Run(t.Context(), server+` & echo started`, &sandbox.CommandParams{Timeout: time.Minute})
	if err != nil || result.Stdout != "started\n" || !result.OutputHeld {
		t.Fatalf("%+v, %v, want that it started and its output is held", result, err)
	}
	result, err = sb.Commands.Run(t.Context(), `echo >go; cat answer`, &sandbox.CommandParams{Timeout: time.Minute})
	if err != nil || strings.TrimSpace(result.Stdout) != "alive" || result.OutputHeld {
		t.Errorf("%+v, %v, want that the server is alive", result, err)
	}
}
