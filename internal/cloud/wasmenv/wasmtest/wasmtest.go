// Package wasmtest provides Deno and Pyodide for tests.
package wasmtest

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Need returns the Env that `make deps-engines` prepared. If there is no such Env, Need skips the
// test with [pinned.Skip].
func Need(t testing.TB) *wasmenv.Env {
	t.Helper()
	enginetest.Need(t)
	env, err := wasmenv.Find()
	if err != nil {
		pinned.Skip(t, "Deno and Pyodide are needed: run make deps-engines, which fetches them (%v)", err)
	}
	return env
}
