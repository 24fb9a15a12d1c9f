// Package kerneltest provides real Jupyter kernels for tests: ipykernel, bash_kernel and Deno's
// kernel, in the versions of requirements.txt. The descriptions of these kernels are the same as in
// the full environment.
package kerneltest

import (
	"embed"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed requirements.txt
var requirements embed.FS

// Packages contains the kernels, and a separate Python environment for them.
var Packages = pinned.Set{
	Name: "kernels", Pins: requirements,
	Commands: [][]string{
		{pinned.Interpreter, "-m", "venv", "."},
		{"bin/python3", "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps", "-r", "requirements.txt"},
	},
	Finish: func(directory string) error { return pyenv.WriteKernelspecs(directory, true) },
}

// Environ returns the environment variables that are needed to find and run the kernels "python3"
// (ipykernel), "bash" and "deno". If the kernels are missing, Environ skips the test as
// [pinned.Skip] does.
func Environ(t testing.TB) []string {
	t.Helper()
	prefix := Packages.Find(t)
	return []string{
		"PATH=" + filepath.Join(prefix, "bin") + ":" + os.Getenv("PATH"), "HOME=" + prefix,
		"JUPYTER_PATH=" + filepath.Join(prefix, "share/jupyter"),
	}
}
