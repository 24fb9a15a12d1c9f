// Package kerneltest provides real Jupyter kernels to tests: ipykernel, bash_kernel
// and Deno's, at the versions in requirements.txt. They are described as the full
// environment's are.
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

// Packages has the kernels, and a Python of their own.
var Packages = pinned.Set{
	Name: "kernels", Pins: requirements,
	Commands: [][]string{
		{pinned.Interpreter, "-m", "venv", "."},
		{"bin/python3", "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps", "-r", "requirements.txt"},
	},
	Finish: func(directory string) error { return pyenv.WriteKernelspecs(directory, true) },
}

// Environ returns the variables that make the kernels "python3" (ipykernel), "bash"
// and "deno" known and runnable. If they are missing, the test is skipped as
// [pinned.Skip] does.
func Environ(t testing.TB) []string {
	t.Helper()
	prefix := Packages.Find(t)
	return []string{
		"PATH=" + filepath.Join(prefix, "bin") + ":" + os.Getenv("PATH"), "HOME=" + prefix,
		"JUPYTER_PATH=" + filepath.Join(prefix, "share/jupyter"),
	}
}
