//go:build linux

package local_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// pythonVariable makes this program start a cloud on a machine without the prepared
// Python, or without any, if it is "none".
const pythonVariable = "LOCAL_TEST_PYTHON"

// TestMachineWithoutPython really takes Python away: commands and files work all the
// same, and the errors of calls that need Python name the package to install.
func TestMachineWithoutPython(t *testing.T) {
	t.Parallel()
	needsFull(t)
	out := startOnMachine(t, "none")
	for _, want := range []string{
		"level=WARN", "no usable python3 found; install Python 3.9 or newer", // the log
		"isolation full", "commands: it works", "files: kept",
		"KernelStartError", "has no python3: install Python 3.9 or newer there, or name one in E2BCTL_PYTHON",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %q in it", out, want)
		}
	}
}

// TestMachineWithoutPreparedPython checks that a missing package is reported twice: in the
// default log when the cloud starts, and in the exception of code that needs it.
func TestMachineWithoutPreparedPython(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import pandas").Run() == nil {
		t.Skip("the python3 of this machine has pandas")
	}
	out := startOnMachine(t, "bare")
	for _, want := range []string{
		"level=WARN", "pandas", "run `e2bctl local setup`", // the log
		"ModuleNotFoundError: No module named 'pandas'; run `e2bctl local setup`",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %q in it", out, want)
		}
	}
}

// needsFull skips a test where this machine has no namespaces.
func needsFull(t *testing.T) {
	t.Helper()
	if isolation := sandboxtest.New(t, local.WithWarm(0)).Isolation(); isolation != local.Full {
		t.Skipf("isolation is %s here; the test needs namespaces", isolation)
	}
}

// startOnMachine runs [startWithPython] in a process of its own, and returns the output.
func startOnMachine(t *testing.T, python string) string {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{pythonVariable + "=" + python, "HOME=" + home, "TMPDIR=" + home, "PATH=/usr/bin:/bin"}
	if python == "none" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if id := os.Geteuid(); id != 0 {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
			group := os.Getegid()
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: group, HostID: group, Size: 1}}
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// startWithPython starts a cloud on a machine that has only as much Python as is
// named, and writes the output of the default logger and of a sandbox.
func startWithPython(w io.Writer, python string) error {
	if python == "none" {
		if err := hidePython(); err != nil {
			return err
		}
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
	ctx := context.Background()
	cloud, err := local.Start(ctx)
	if err != nil {
		return err
	}
	defer cloud.Close()
	fmt.Fprintln(w, "isolation", cloud.Isolation())
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "echo it works", nil)
		if err != nil {
			return err
		}
		fmt.Fprint(w, "commands: ", result.Stdout)
		if err := sb.Files.Write(ctx, "a", []byte("kept"), nil); err != nil {
			return err
		}
		data, err := sb.Files.Read(ctx, "a", nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "files: %s\n", data)
		execution, err := sb.RunCode(ctx, "import pandas", nil)
		if err == nil && execution.Error != nil {
			err = execution.Error
		}
		fmt.Fprintln(w, "code:", err)
		return nil
	}, cloud.Option())
}

// hidePython covers this machine's interpreters with an empty file, for this process
// and those that it starts.
func hidePython() error {
	empty := filepath.Join(os.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		return err
	}
	for _, name := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		file, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue // there is none
		}
		if err := unix.Mount(empty, file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", file, err)
		}
	}
	return nil
}
