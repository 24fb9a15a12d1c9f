//go:build linux

// Package kerneltest provides real Jupyter kernels to tests: ipykernel, bash_kernel
// and Deno's, at the versions in requirements.txt. They are installed once, into
// the user's cache directory, and described as the full environment's are.
package kerneltest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

//go:embed requirements.txt
var requirements []byte

// layout is part of the name of what is installed: it changes with how that is done.
const layout = "2"

// Environ returns the variables with which the kernels "python3" (ipykernel),
// "bash" and "deno" are found and run. If they cannot be installed the test is
// skipped; in CI it fails.
func Environ(t testing.TB) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		skip(t, "no cache directory: %v", err)
	}
	root := filepath.Join(cache, "e2bctl", "kernels")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := lockedfile.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	hash := sha256.Sum256(append(bytes.Clone(requirements), layout...))
	prefix := filepath.Join(root, hex.EncodeToString(hash[:6]))
	environ := []string{
		"PATH=" + filepath.Join(prefix, "bin") + ":" + os.Getenv("PATH"), "HOME=" + prefix,
		"JUPYTER_PATH=" + filepath.Join(prefix, "share/jupyter"),
	}
	complete := filepath.Join(prefix, "complete")
	if _, err := os.Stat(complete); err == nil {
		return environ
	}
	if err := os.RemoveAll(prefix); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(prefix, "bin", "python3")
	list := filepath.Join(prefix, "requirements.txt")
	run(t, nil, "python3", "-m", "venv", prefix)
	if err := os.WriteFile(list, requirements, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
		"--only-binary=:all:", "--no-deps", "-r", list)
	if err := pyenv.WriteKernelspecs(prefix); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return environ
}

func run(t testing.TB, environ []string, program string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = environ
	if output, err := command.CombinedOutput(); err != nil {
		skip(t, "install Jupyter kernels: %v\n%s", err, output)
	}
}

func skip(t testing.TB, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}
