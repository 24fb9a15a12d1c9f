package pyshim_test

import (
	_ "embed"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pyshim"
)

//go:embed testdata/guard_tables.py
var guardTables string

// TestGuardTables checks that each entry of the guard's tables has its effect, that nothing
// beside them is allowed, and that no module hangs on an allowed one.
func TestGuardTables(t *testing.T) {
	t.Parallel()
	if got := run(t, pyshim.Install()+"\n"+pyshim.InstallGuard()+"\n"+guardTables); got != "done" {
		t.Error(got)
	}
}

//go:embed testdata/fingerprints.py
var fingerprints string

// TestFingerprints checks that every change of a value is told, and none of an equal value; and
// that only the last pull can be acknowledged.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	if got := run(t, pyshim.Install()+"\n"+fingerprints); got != "done" {
		t.Error(got)
	}
}
