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
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/cloud/python"
)

func TestJavaScriptSDK(t *testing.T) {
	t.Parallel()
	modules := installJS(t)
	drive(t, localUp(t), exec.CommandContext(t.Context(), "node", filepath.Join(modules, "drive.mjs")))
}

func TestPythonSDK(t *testing.T) {
	t.Parallel()
	interpreter, packages := installPython(t)
	command := exec.CommandContext(t.Context(), interpreter, filepath.Join(packages, "drive.py"))
	command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(packages, "lib"))
	drive(t, localUp(t), command)
}

func TestCommand(t *testing.T) {
	t.Parallel()
	command := filepath.Join(installJS(t), "node_modules", ".bin", "e2b")
	cloud := localUp(t)
	run := func(arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), command, arguments...)
		command.Env = append(os.Environ(), "NO_UPDATE_NOTIFIER=1")
		return drive(t, cloud, command)
	}
	id := strings.TrimSpace(run("sandbox", "create", "-d"))
	if list := run("sandbox", "list"); !strings.Contains(list, id) {
		t.Errorf("list does not show %s:\n%s", id, list)
	}
	if got := run("sandbox", "exec", id, "echo", "hello"); got != "hello\n" {
		t.Errorf("exec printed %q", got)
	}
	run("sandbox", "kill", id)
	if list := run("sandbox", "list"); strings.Contains(list, id) {
		t.Errorf("list shows the killed %s:\n%s", id, list)
	}
}

// drive runs an official client with the variables of a cloud and returns what it printed.
func drive(t *testing.T, cloud []string, command *exec.Cmd) string {
	t.Helper()
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, cloud...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	command.WaitDelay = time.Second
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// installJS returns the directory with js/ and its installed packages.
func installJS(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		skip(t, "npm is not installed: %v", err)
	}
	return install(t, "js", func(directory string) *exec.Cmd {
		command := exec.CommandContext(t.Context(), "npm", "ci", "--prefer-offline")
		command.Dir = directory
		return command
	})
}

// installPython returns an interpreter and the directory with python/ and, in
// its lib, the installed packages.
func installPython(t *testing.T) (interpreter, directory string) {
	t.Helper()
	env, err := python.Ensure(t.Context(), t.Output())
	if err != nil {
		skip(t, "no Python: %v", err)
	}
	if env.Level != python.Venv {
		skip(t, "pip is needed: %s", env.Note)
	}
	return env.Python, install(t, "python", func(directory string) *exec.Cmd {
		return exec.CommandContext(t.Context(), env.Python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--require-hashes", "--only-binary=:all:", "--no-deps",
			"--target", filepath.Join(directory, "lib"), "-r", filepath.Join(directory, "requirements.txt"))
	})
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
	lock, err := lockedfile.OpenFile(filepath.Join(root, folder+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	directory := filepath.Join(root, folder+"-"+contents(t, folder))
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
