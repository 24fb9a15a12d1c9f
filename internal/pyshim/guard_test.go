package pyshim_test

import (
	_ "embed"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pyshim"
)

//go:embed testdata/guard_grammar.py
var guardGrammar string

// TestGuardKnowsTheGrammar checks that the guard looks at every name that Python's grammar
// has a place for. It enumerates these places, so it fails with a Python that has a new one.
func TestGuardKnowsTheGrammar(t *testing.T) {
	t.Parallel()
	if got := run(t, pyshim.Install()+"\n"+pyshim.InstallGuard()+"\n"+guardGrammar); got != "done" {
		t.Error(got)
	}
}
