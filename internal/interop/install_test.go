package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/cloud/python"
)

// installJS returns the directory whose node_modules has the packages pinned in
// js/generation.
func installJS(t *testing.T, generation string) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		skip(t, "npm is not installed: %v", err)
	}
	return install(t, filepath.Join("js", generation), func(directory string) *exec.Cmd {
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
	env, err := python.Ensure(t.Context(), t.Output())
	if err != nil {
		skip(t, "no Python: %v", err)
	}
	if env.Level != python.Venv {
		skip(t, "pip is needed: %s", env.Note)
	}
	directory := install(t, filepath.Join("python", generation), func(directory string) *exec.Cmd {
		return exec.CommandContext(t.Context(), env.Python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--require-hashes", "--only-binary=:all:", "--no-deps",
			"--target", filepath.Join(directory, "lib"), "-r", filepath.Join(directory, "requirements.txt"))
	})
	return env.Python, filepath.Join(directory, "lib")
}

// install copies the folder to the user's cache and runs command there, once
// for each content of the folder, whatever number of tests and processes ask.
func install(t *testing.T, folder string, command func(directory string) *exec.Cmd) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		skip(t, "no cache directory: %v", err)
	}
	root := filepath.Join(cache, "e2bctl", "interop")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(folder, string(filepath.Separator), "-")
	lock, err := lockedfile.OpenFile(filepath.Join(root, name+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	directory := filepath.Join(root, name+"-"+contents(t, folder))
	complete := filepath.Join(directory, "complete")
	if _, err := os.Stat(complete); err == nil {
		return directory
	}
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(directory, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	if output, err := command(directory).CombinedOutput(); err != nil {
		if errors.Is(t.Context().Err(), context.Canceled) {
			t.Fatal("the test was ended while it installed")
		}
		skip(t, "install the packages of %s: %v\n%s", folder, err, output)
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return directory
}

// contents names what is in the folder.
func contents(t *testing.T, folder string) string {
	t.Helper()
	hash := sha256.New()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(hash, file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:6])
}

// skip skips the test with its reason; in CI what is skipped is not proven, so
// there it fails.
func skip(t *testing.T, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}
