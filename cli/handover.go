package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmd/version"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
)

// envHandedOver names the environment variable by which an e2bctl that starts this program in its
// own place passes on its version.
const envHandedOver = "E2BCTL_HANDED_OVER"

// checkHandedOver returns an error if another e2bctl started this program in its own place, but
// this program is no replacement: it has another version or lacks the engine kubernetes.
// checkHandedOver removes the environment variable, because programs that this one starts must not
// see it.
func checkHandedOver() error {
	from, handed := os.LookupEnv(envHandedOver)
	if !handed {
		return nil
	}
	if err := os.Unsetenv(envHandedOver); err != nil {
		return err
	}
	self, err := os.Executable()
	switch {
	case err != nil:
		return err
	case !kubelink.Linked():
		return fmt.Errorf("%s has no engine %s: it is a copy of e2bctl; put the program that make kubernetes builds in its place", self, kubelink.Name)
	case from != version.Build():
		return fmt.Errorf("%s is of version %s, and e2bctl of version %s: build both with make kubernetes", self, version.Build(), from)
	}
	return nil
}

// needsOther reports whether a command line selects the engine kubernetes, but this program does
// not have that engine and another program must run the command.
func needsOther(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("engine")
	return flag != nil && flag.Value.String() == kubelink.Name && !kubelink.Linked()
}

// handOver runs the program with the engine kubernetes in place of this one, with the same
// arguments, streams and variables. If this process can become the program, handOver returns only
// on failure. Otherwise it runs the program as a child, and returns the child's exit status as a
// cmdutil.RemoteStatus. If there is no such status, it returns another error.
func handOver(ctx context.Context, ios *cmdutil.IOStreams, args []string) error {
	program, err := findOther()
	if err != nil {
		return err
	}
	env := append(os.Environ(), envHandedOver+"="+version.Build())
	if ios.OfProcess {
		if err := become(program, args, env); !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("start %s: %w", program, err)
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, ios.In, ios.Out, ios.Err
	if ios.OfProcess { // a child that has the files themselves sees the terminal
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	cmd.Cancel = func() error { return interrupt(cmd.Process) }
	cmd.WaitDelay = handOverGrace
	if err := cmd.Run(); cmd.ProcessState == nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	status := cmd.ProcessState.ExitCode()
	if status < 0 {
		return fmt.Errorf("%s ended: %v", program, cmd.ProcessState)
	}
	return cmdutil.RemoteStatus(status)
}

// handOverGrace is the time that the other program has to end after its interruption. That program
// bounds its clean-up itself.
const handOverGrace = cmdutil.CleanupGrace + 2*time.Second

// findOther returns the path of the program that has the engine kubernetes. That program is beside
// this one or in PATH.
func findOther() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(self)
	if err != nil {
		return "", err
	}
	for _, beside := range []string{self, real} {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(beside), kubelink.Program)); err == nil {
			return found, nil
		}
	}
	if found, err := exec.LookPath(kubelink.Program); err == nil {
		return found, nil
	}
	return "", fmt.Errorf("the engine %s is in a program of its own, %s, and there is none beside %s nor in PATH: make kubernetes builds both", kubelink.Name, kubelink.Program, self)
}
