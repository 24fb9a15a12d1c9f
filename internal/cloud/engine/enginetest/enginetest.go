// Package enginetest decides whether to run the tests of engines that need more than this machine's
// kernel: a daemon, packages of npm, or minutes of compiling.
package enginetest

import (
	"os"
	"testing"
)

// Wanted reports whether the tests were started by make check-engines, as root.
func Wanted() bool { return os.Getenv("E2BCTL_TEST_ENGINES") != "" && os.Geteuid() == 0 }

// Need skips the test unless make check-engines started it.
func Need(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip("make check-engines runs this test, as root")
	}
}
