// Package pinned installs, for tests, the packages that a folder pins with
// their hashes. They are kept in the user's cache directory, one copy per
// content of the folder, however many tests and processes use them.
package pinned

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// Python returns an interpreter, and the directory with the packages that the
// folder's requirements.txt pins. name distinguishes this folder from others.
func Python(t testing.TB, name string, folder fs.FS) (interpreter, packages string) {
	t.Helper()
	env, err := pyenv.Ensure(t.Context(), t.Output())
	if err != nil {
		Skip(t, "no Python: %v", err)
	}
	if env.Level != pyenv.Venv {
		Skip(t, "pip is needed: %s", env.Note)
	}
	directory := Install(t, name, folder, func(directory string) *exec.Cmd {
		return exec.CommandContext(t.Context(), env.Python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--require-hashes", "--only-binary=:all:", "--no-deps",
			"--target", filepath.Join(directory, "lib"), "-r", filepath.Join(directory, "requirements.txt"))
	})
	return env.Python, filepath.Join(directory, "lib")
}

// Install copies folder to the user's cache and runs command there, unless that
// has been done before, and returns the directory. When it fails, the test is
// skipped as [Skip] does.
func Install(t testing.TB, name string, folder fs.FS, command func(directory string) *exec.Cmd) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		Skip(t, "no cache directory: %v", err)
	}
	root := filepath.Join(cache, "e2bctl", "interop")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := lockedfile.OpenFile(filepath.Join(root, name+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	digest, err := contents(folder)
	if err != nil {
		t.Fatalf("read the pins of %s: %v", name, err)
	}
	directory := filepath.Join(root, name+"-"+digest)
	complete := filepath.Join(directory, "complete")
	if _, err := os.Stat(complete); err == nil {
		return directory
	}
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(directory, folder); err != nil {
		t.Fatal(err)
	}
	if output, err := command(directory).CombinedOutput(); err != nil {
		if errors.Is(t.Context().Err(), context.Canceled) {
			t.Fatal("the test was ended while it installed")
		}
		Skip(t, "install the packages of %s: %v\n%s", name, err, output)
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return directory
}

// contents returns a digest of the folder's files.
func contents(folder fs.FS) (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := folder.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		fmt.Fprintf(hash, "%s\x00", path)
		_, err = io.Copy(hash, file)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)[:6]), err
}

// Skip skips the test with its reason. A test that CI skips proves nothing, so
// with CI=true the test fails instead.
func Skip(t testing.TB, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}
