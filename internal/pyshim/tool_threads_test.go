package pyshim_test

import (
	_ "embed"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pyshim"
)

//go:embed testdata/tool_threads.py
var toolThreads string

// TestThreadsThatCallTools checks that each of many threads gets the answers to its own calls,
// however they come and whoever is interrupted meanwhile.
func TestThreadsThatCallTools(t *testing.T) {
	t.Parallel()
	if got := run(t, pyshim.Install()+"\n"+toolThreads); got != "done" {
		t.Error(got)
	}
}
