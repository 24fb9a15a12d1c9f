//go:build linux

package e2e

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/relaytest"
	"github.com/e2bctl/e2bctl/sandbox"
)

// onWrite calls a function when a byte arrives.
type onWrite struct {
	once sync.Once
	do   func()
	out  strings.Builder
}

func (w *onWrite) Write(p []byte) (int, error) {
	w.once.Do(w.do)
	return w.out.Write(p)
}

// However the connection is cut during a call, code runs once, and its output
// is either complete or reported as incomplete.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			r := relaytest.New(t, cloud.URL())
			testConnectionCut(t, r, cloud.Create(t, sandbox.WithSandboxURL(r.URL()), sandbox.WithCodeTransport(transport)))
		})
	}
}

func testConnectionCut(t *testing.T, r *relaytest.Relay, sb *sandbox.Sandbox) {
	evaluate(t, sb, "n = 0")
	const lines = 200
	for i := range 10 {
		w := &onWrite{do: r.Cut}
		execution, err := sb.RunCode(t.Context(), "n += 1\nimport time\nfor i in range(200):\n  print(i, flush=True)\n  time.sleep(0.001)\nn", &sandbox.RunCodeParams{Stdout: w})
		if err != nil && !errors.Is(err, sandbox.ErrKernelLost) {
			t.Errorf("%d: %v", i, err)
		}
		if got := strings.Count(w.out.String(), "\n"); got > lines || err == nil && got != lines {
			t.Errorf("%d: %d lines came, %v, want %d, or less and an error", i, got, err, lines)
		}
		if execution == nil {
			t.Errorf("%d: no execution came with %v", i, err)
		}
		if err != nil && sb.CodeTransport() == sandbox.CodeTransportWebsocket {
			t.Errorf("%d: the session was not resumed: %v", i, err)
		}
	}
	if got := evaluate(t, sb, "n"); got != "10" {
		t.Errorf("10 calls ran %s times, want %q", got, "10")
	}
}
