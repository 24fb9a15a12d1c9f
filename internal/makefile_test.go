package internal_test

import (
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTargetsUseThePreparedPython checks that each target of the Makefile that runs tests puts
// the prepared Python first in PATH. With another Python, tests of kernels find other packages.
func TestTargetsUseThePreparedPython(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Makefile")
	must.Do(t, err)
	_, prepared, found := strings.Cut(string(text), "\nPREPARED = ")
	if !found || !strings.HasPrefix(prepared, "python=$$($(BIN)/e2bctl local setup") {
		t.Error("the Makefile does not say which Python is the prepared one")
	}
	for _, target := range []string{"short", "test", "cover", "storm", "fuzz", "frameworks"} {
		_, recipe, _ := strings.Cut(string(text), "\n"+target+":")
		recipe, _, _ = strings.Cut(recipe, "\n.PHONY")
		if !strings.Contains(recipe, "$(PREPARED)") && !strings.Contains(recipe, "$(TESTRUN)") {
			t.Errorf("make %s does not put the prepared Python first in PATH", target)
		}
	}
}
