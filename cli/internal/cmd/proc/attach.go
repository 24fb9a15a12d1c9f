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
	var from int64
	cmd := command(f, &cobra.Command{
		Use:   "attach <id> <pid>",
		Short: "Show what a process prints from now on",
		Long: `Show the output of a process of a sandbox from now on, pass standard input on to it,
and return its exit status when it ends, as exec does. When standard input ends, the
process's input ends, too; -n passes nothing on. Ctrl-C leaves, and the process goes on.

A local cloud keeps the newest megabyte of each process's output, and that of an ended
process for a minute. --from shows it from a byte on: 0 is the first one. If that byte
is no longer kept, the error says how many are missing.

e2bctl connect --pid shows a terminal, such as that of exec -t.`,
		Example: `  PID=$(e2bctl proc ls "$ID" --jq '.[] | select(.tag == "web") | .pid')
  e2bctl proc attach "$ID" "$PID"
  e2bctl proc attach --from 0 "$ID" "$PID" >server.log`,
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
		params := &sandbox.CommandConnectParams{Stdout: f.IO.Out, Stderr: f.IO.Err, MaxOutputBytes: -1}
		if from >= 0 {
			params.From = &from
		}
		return cmdutil.OwnFailure(attach(ctx, f, sb, pid, params, input))
	})
	cmd.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	cmd.Flags().Int64Var(&from, "from", -1, "the `byte` of the output to begin with; 0 is the first (default from now on)")
	cmd.Flags().Lookup("from").DefValue = "0"
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("from") && from < 0 {
			return cmdutil.Usagef(cmd, "--from %d is not the number of a byte", from)
		}
		if f.JSON() {
			return cmdutil.Usagef(cmd, "leave -o json out: what the process prints is the output")
		}
		return cmdutil.OwnFailure(inner(cmd, args))
	}
	return cmd
}

// attach shows the output of a process until the process or ctx ends.
// If the exit status is not 0, it returns a cmdutil.RemoteStatus.
func attach(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, pid int, params *sandbox.CommandConnectParams, input io.Reader) error {
	process, err := sb.Commands.Connect(ctx, sandbox.ByPID(pid), params)
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
		if params.From != nil {
			fmt.Fprintf(f.Progress(), "  --from %d goes on with its output\n", process.Offset())
		}
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
