//go:build linux

package realservice_test

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/realservice"
	"github.com/e2bctl/e2bctl/sandbox"
)

// After a cancelled call over HTTP, the next ones are answered, whether they are sent
// afterwards or are already waiting.
func TestCallsAfterOneThatWasGivenUp(t *testing.T) {
	t.Parallel()
	sb := connect(t, realservice.Start(t), sandbox.WithCodeTransport(sandbox.CodeTransportHTTP))
	const code = "x = 40\nprint('begun', flush=True)\nimport time\ntime.sleep(600)"
	next := func() error {
		e, err := sb.RunCode(patience.Context(t), "x + 2", nil)
		if err == nil && e.Text() != "42" {
			t.Errorf("got %+v, want text %q", e, "42")
		}
		return err
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := sb.RunCode(ctx, code, &sandbox.RunCodeParams{Stdout: whenWritten(cancel)})
		if _, ok := errors.AsType[*sandbox.InterruptedError](err); !ok {
			t.Fatalf("got %v, want a *sandbox.InterruptedError", err)
		}
		if err := next(); err != nil {
			t.Fatalf("a call that comes then: %v", err)
		}
		waiting := make(chan error, 1)
		ctx, cancel = context.WithCancel(t.Context())
		_, err = sb.RunCode(ctx, code, &sandbox.RunCodeParams{Stdout: whenWritten(func() {
			go func() { waiting <- next() }()
			cancel()
		})})
		if _, ok := errors.AsType[*sandbox.InterruptedError](err); !ok {
			t.Fatalf("got %v, want a *sandbox.InterruptedError", err)
		}
		if err := <-waiting; err != nil {
			t.Fatalf("a call that waits: %v", err)
		}
	}
}

// whenWritten is called at each write.
type whenWritten func()

func (w whenWritten) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}
