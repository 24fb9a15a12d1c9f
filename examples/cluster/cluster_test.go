package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCluster runs the program with a server that it knows from the environment. The tests of the
// Kubernetes engine run it with a server in a cluster.
func TestCluster(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	var out strings.Builder
	must.Do(t, run(t.Context(), &out, false, ""))
	want := regexp.MustCompile(`^created sandbox \w+ in [\d.]+m?s
it is running, with \d+ processors and \d+ MiB of memory, for the job squares
its kernel is Linux \S+
the squares 4, 9, 36 have the sum 49
ended the sandbox
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	if err := run(t.Context(), &out, false, "missing"); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a template that is missing: %v", err)
	}
	client, err := sandbox.NewClient()
	must.Do(t, err)
	for info, err := range client.List(t.Context(), nil) {
		t.Errorf("a sandbox is left: %+v, %v", info, err)
	}
}
