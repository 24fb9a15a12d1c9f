//go:build linux

package cloud

import (
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestTooSmallLimits checks that whoever creates a sandbox learns that nothing can start within
// the limits, as an error of the request and not of the server.
func TestTooSmallLimits(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{})
	e.docker.refuses = fmt.Errorf("docker: %w", engine.Limits{MemoryBytes: 1}.Check())
	if status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base-docker"}`); status != 400 || !strings.Contains(text, "1 bytes of memory, and 16777216 are the least") {
		t.Errorf("got %d %s, want 400 with the limit", status, text)
	}
}
