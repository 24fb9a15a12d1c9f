package proc

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

func newCmdAttach(f *cmdutil.Factory) *cobra.Command {
	var noStdin bool
	cmd := command(f, &cobra.Command{
		Use:   "attach <id> <pid>",
		Short: "Show what a process prints from now on",
		Long: `Show the output of a process of a sandbox from now on, pass standard input on to it,
and return its exit status when it ends, as exec does. Earlier output is not repeated.
When standard input ends, the process's input ends, too; -n passes nothing on. Ctrl-C
leaves, and the process goes on.

e2bctl connect --pid shows a terminal, such as that of exec -t.`,
		Example: `  PID=$(e2bctl proc ls "$ID" --jq '.[] | select(.tag == "web") | .pid')
  e2bctl proc attach "$ID" "$PID"`,
		Args: wants("the ID of a sandbox and the number of one process", 1, 1),
	}, func(ctx context.Context, sb *sandbox.Sandbox, args []string) error {
		pid, err := parsePID(args[0])
		if err != nil {
			return err
		}
		var input io.Reader
		if !noStdin && (f.IO.InIsTerminal || f.IO.InIsData) {
			input = f.IO.In
		}
		return cmdutil.OwnFailure(attach(ctx, f, sb, pid, input))
	})
	cmd.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.JSON() {
			return cmdutil.Usagef(cmd, "leave -o json out: what the process prints is the output")
		}
		return cmdutil.OwnFailure(inner(cmd, args))
	}
	return cmd
}

// attach shows the output of a process until the process or ctx ends.
// If the exit status is not 0, it returns a cmdutil.RemoteStatus.
func attach(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, pid int, input io.Reader) error {
	process, err := sb.Commands.Connect(ctx, sandbox.ByPID(pid), &sandbox.CommandConnectParams{Stdout: f.IO.Out, Stderr: f.IO.Err, MaxOutputBytes: -1})
	if err != nil {
		return err
	}
	defer process.Disconnect()
	fmt.Fprintf(f.Progress(), "process %d; Ctrl-C leaves it running\n", pid)
	if input != nil {
		go func() { // until the process ends: this read cannot be cancelled
			if err := feed(ctx, process, input); err != nil && ctx.Err() == nil {
				fmt.Fprintf(f.IO.Err, "e2bctl: proc attach: the process takes no input: %s\n", cmdutil.Message(err))
			}
		}()
	}
	result, err := process.Wait(ctx)
	if ctx.Err() != nil {
		process.Disconnect()
		fmt.Fprintf(f.Progress(), "process %d goes on in sandbox %s\n", pid, cmdutil.Printable(sb.ID()))
		return context.Cause(ctx)
	}
	if _, exited := errors.AsType[*sandbox.ExitError](err); err != nil && !exited {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	cmdutil.Explain(f.IO.Err, "proc attach", result)
	if status := cmdutil.ExitStatus(result); status != 0 {
		return cmdutil.RemoteStatus(status)
	}
	return nil
}

// feed copies input to a process's standard input, and closes the standard input at the end of
// input.
func feed(ctx context.Context, process *sandbox.Command, input io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := input.Read(buffer)
		if n > 0 {
			if err := process.SendInput(ctx, buffer[:n]); err != nil {
				return err
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		return process.CloseStdin(ctx)
	}
}
