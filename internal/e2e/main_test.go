//go:build linux

package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/sandbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}

// run runs a command that has to succeed and returns what it printed.
func run(t *testing.T, sb *sandbox.Sandbox, command string) string {
	t.Helper()
	result, err := sb.Commands.Run(t.Context(), command, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return result.Stdout
}

// evaluate runs code that has to succeed and returns its value as text.
func evaluate(t *testing.T, sb *sandbox.Sandbox, code string) string {
	t.Helper()
	execution, err := sb.RunCode(t.Context(), code, nil)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return execution.Text()
}

// eventually waits until what a background goroutine or another process brings
// about is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("never came: %s", what)
		case <-tick.C:
		}
	}
}

// whenWritten cancels a context as soon as something is written to it.
type whenWritten struct{ cancel context.CancelFunc }

func (w whenWritten) Write(p []byte) (int, error) {
	w.cancel()
	return len(p), nil
}
