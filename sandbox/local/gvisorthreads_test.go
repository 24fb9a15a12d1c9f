//go:build linux

package local_test

import (
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestGVisorThreadKilled kills envd by the numbers of its threads, which no filter protects, as
// root. That ends the sandbox at once, and with a reason; another one lives on.
func TestGVisorThreadKilled(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, gvisorOptions(t)...)
	other := cloud.Create(t)
	sb, err := sandbox.Create(t.Context(), cloud.Option())
	must.Do(t, err)
	defer func() { _ = sb.Close() }() // it has died
	const command = "for thread in $(ls /proc/1/task); do kill -KILL $thread; done; sleep 1000"
	if r, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: "root"}); err == nil {
		t.Errorf("the command that killed envd: got %+v, want an error", r)
	}
	_, err = sb.RunCode(t.Context(), "1", nil)
	if gone, ok := errors.AsType[*sandbox.GoneError](err); !ok || gone.Reason == "" {
		t.Errorf("got %v, want that it is gone, and why", err)
	}
	alive(t, other)
}
