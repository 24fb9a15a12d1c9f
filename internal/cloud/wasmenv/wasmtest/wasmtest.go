// Package wasmtest has Deno and Pyodide for tests.
package wasmtest

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Need prepares this machine, through npm. Where that is impossible the test is skipped as
// [pinned.Skip] does.
func Need(t testing.TB) *wasmenv.Env {
	t.Helper()
	enginetest.Need(t)
	env, err := wasmenv.Setup(t.Context(), t.Output(), "")
	if err != nil {
		pinned.Skip(t, "Deno and Pyodide are needed: %v", err)
	}
	return env
}
