// Package gvisortest provides gVisor to tests.
package gvisortest

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Need returns the runsc that `make deps-engines` built. If there is none, Need skips the test
// as [pinned.Skip] does.
func Need(t testing.TB) gvisorenv.Program {
	t.Helper()
	enginetest.Need(t)
	program, err := gvisorenv.Find(t.Context(), "")
	if err != nil {
		pinned.Skip(t, "gVisor is needed: run make deps-engines, which builds it (%v)", err)
	}
	return program
}
