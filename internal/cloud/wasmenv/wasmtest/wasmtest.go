// Package wasmtest has Deno and Pyodide for tests.
package wasmtest

import (
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Wanted reports whether make check-engines runs the tests, as root.
func Wanted() bool { return os.Getenv("E2BCTL_TEST_ENGINES") != "" && os.Geteuid() == 0 }

// Need prepares this machine, through npm. Where that is impossible the test is skipped as
// [pinned.Skip] does.
func Need(t testing.TB) *wasmenv.Env {
	t.Helper()
	if !Wanted() {
		t.Skip("make check-engines runs this test, as root")
	}
	env, err := wasmenv.Setup(t.Context(), t.Output(), "")
	if err != nil {
		pinned.Skip(t, "Deno and Pyodide are needed: %v", err)
	}
	return env
}
