// Package gvisortest has gVisor for tests.
package gvisortest

import (
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Wanted reports whether make check-engines runs the tests, as root.
func Wanted() bool { return os.Getenv("E2BCTL_TEST_ENGINES") != "" && os.Geteuid() == 0 }

// Need builds runsc, with the Go of this machine. Where that is impossible the test is skipped
// as [pinned.Skip] does.
func Need(t testing.TB) gvisorenv.Program {
	t.Helper()
	if !Wanted() {
		t.Skip("make check-engines runs this test, as root")
	}
	program, err := gvisorenv.Setup(t.Context(), t.Output(), "")
	if err != nil {
		pinned.Skip(t, "gVisor is needed: %v", err)
	}
	return program
}
