// Package gvisortest has gVisor for tests.
package gvisortest

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Need builds runsc, with the Go of this machine. Where that is impossible the test is skipped
// as [pinned.Skip] does.
func Need(t testing.TB) gvisorenv.Program {
	t.Helper()
	enginetest.Need(t)
	program, err := gvisorenv.Setup(t.Context(), t.Output(), "")
	if err != nil {
		pinned.Skip(t, "gVisor is needed: %v", err)
	}
	return program
}
