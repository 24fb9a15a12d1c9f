package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

// installJS returns the directory whose node_modules contains the packages
// pinned in js/generation.
func installJS(t *testing.T, generation string) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		pinned.Skip(t, "npm is not installed: %v", err)
	}
	return pinned.Install(t, "js-"+generation, os.DirFS(filepath.Join("js", generation)), func(directory string) *exec.Cmd {
		command := exec.CommandContext(t.Context(), "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
		command.Dir = directory
		command.Env = append(os.Environ(), "NO_UPDATE_NOTIFIER=1")
		return command
	})
}

// installPython returns an interpreter and the directory with the packages
// pinned in python/generation.
func installPython(t *testing.T, generation string) (interpreter, packages string) {
	t.Helper()
	return pinned.Python(t, "python-"+generation, os.DirFS(filepath.Join("python", generation)))
}
