//go:build linux

package e2e

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestMuchOutputOfBuild checks that a step continues regardless of how much it writes, and
// that the log is bounded.
func TestMuchOutputOfBuild(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	result := api.ready(t, "loud", buildSpec{FromImage: "e2bdev/base", Steps: []buildStep{
		{Type: "RUN", Args: []string{"head -c 200000000 /dev/zero | tr '\\0' x | fold -w 1000; head -c 50000000 /dev/zero | tr '\\0' y; seq 100000; echo done > done"}},
	}})
	if n := len(result.Log); n > 25_000 || !strings.Contains(result.Log[n-1], "Build finished") || !strings.Contains(strings.Join(result.Log, "\n"), "more output, which is left out") {
		t.Errorf("got %d lines, the last %q, want a bounded number and the end", n, result.Log[n-1])
	}
	if got := sandboxtest.Run(t, api.create(t, "loud"), "cat done"); got != "done" {
		t.Errorf("got %q, want the step to have come to its end", got)
	}
}
