//go:build linux

package cloud

import (
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestTooSmallLimits checks that a client that creates a sandbox learns from the error that nothing
// can start within the limits. It is an error of the request, and not of the server.
func TestTooSmallLimits(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{})
	e.docker.refuses = fmt.Errorf("docker: %w", engine.Limits{MemoryBytes: 1}.Check())
	if status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base-docker"}`); status != 400 || !strings.Contains(text, "1 bytes of memory, and 16777216 are the least") {
		t.Errorf("got %d %s, want 400 with the limit", status, text)
	}
}

// TestNoDiskLimit checks that no disk limit is reported if the engine does not enforce one.
func TestNoDiskLimit(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{Limits: engine.Limits{DiskBytes: 512 << 20}})
	shows := func(template, want string) {
		t.Helper()
		id := create(t, c, fmt.Sprintf(`{"templateID":%q}`, template))
		if status, text := do(t, c, "GET", "/sandboxes/"+id, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %s", template, status, text, want)
		}
	}
	shows("base", `"diskSizeMB":512`)
	shows("base-docker", `"diskSizeMB":512`)
	e.docker.lacks = engine.Promises{engine.DiskLimit: "the storage driver limits nothing"}
	shows("base-docker", `"diskSizeMB":0`)
	shows("base", `"diskSizeMB":512`)
}
