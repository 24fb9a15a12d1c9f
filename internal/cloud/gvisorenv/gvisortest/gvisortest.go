// Package gvisortest provides gVisor to tests.
package gvisortest

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Need returns the runsc that `make deps-engines` built. If there is no such runsc, Need skips the
// test in the same way as [pinned.Skip].
func Need(t testing.TB) gvisorenv.Program {
	t.Helper()
	enginetest.Need(t)
	program, err := gvisorenv.Find(t.Context(), "")
	if err != nil {
		pinned.Skip(t, "gVisor is needed: run make deps-engines, which builds it (%v)", err)
	}
	return program
}
