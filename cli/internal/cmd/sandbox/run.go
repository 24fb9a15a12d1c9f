package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

type runOptions struct {
	IO        *cmdutil.IOStreams
	JSON      bool
	Progress  io.Writer
	Open      cmdutil.Opener
	Words     []string
	Sandbox   cmdutil.NewSandboxFlags
	Process   processFlags
	Transfers transfer.Flags
	Timeout   cmdutil.Duration
	Deadline  cmdutil.Duration
	Remove    bool
}

// NewCmdRun returns e2bctl run.
func NewCmdRun(f *cmdutil.Factory) *cobra.Command {
	opts := &runOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "run [flags] [--] <command>...",
		Short: "Run a command in a sandbox of its own",
		Long: `Create a sandbox, upload, run a command and show its output as it comes, download,
kill the sandbox, and return the command's status. Downloads are made even if the
command failed. The sandbox is killed however e2bctl ends, signals included; if
e2bctl itself is killed, the sandbox ends within five minutes.

A directory's content is copied; a file keeps its name if the target ends with a
slash or is a directory. Paths in the sandbox are relative to the user's home. With
--local the sandbox runs on this machine, in a cloud that ends with this command.

--memory, --cpus, --disk and --pids limit what it may use there; on a service the
template decides.

Redirect the output of programs that the command leaves running, as in the last example:
a remote service waits for that output to end.`,
		Example: `  e2bctl run --local -- python3 -c 'print(6 * 7)'
  e2bctl run --upload .:app -w app --deadline 10m --download app/report.xml:out/ -- make test
  e2bctl run --rm=false --lifetime 1h -m job=42 'nohup python3 -m http.server >server.log 2>&1 &'`,
		Args: cmdutil.Wants("a command to run", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Progress = f.JSON(), f.Progress()
			if opts.Words, err = commandWords(cmd, args); err != nil {
				return err
			}
			if isLocal && !opts.Remove {
				return cmdutil.Usagef(cmd, "--rm=false needs a cloud that outlives this command: use e2bctl create --local and e2bctl exec --local")
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalEphemeral, &opts.Sandbox.Resources); err != nil {
				return err
			}
			return cmdutil.OwnFailure(runRun(cmd.Context(), opts))
		},
	}
	opts.Process.add(cmd)
	flags := cmd.Flags()
	opts.Sandbox.Add(cmd, "how long the sandbox may live (default: as long as this command)")
	flags.Var(&opts.Timeout, "timeout", "end the command after this time (status 124)")
	opts.Transfers.Add(cmd, "the command")
	flags.Var(&opts.Deadline, "deadline", "give up after this time, creation and copies included (status 124)")
	flags.BoolVar(&opts.Remove, "rm", true, "kill the sandbox at the end")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func runRun(ctx context.Context, opts *runOptions) (err error) {
	line, err := shellLine(opts.Words)
	if err != nil {
		return err
	}
	if err := opts.Transfers.Check(); err != nil {
		return err
	}
	ctx, cancel := cmdutil.WithLimit(ctx, "deadline", opts.Deadline)
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)

	if !opts.Remove && opts.Sandbox.Lifetime == 0 {
		opts.Sandbox.Lifetime = cmdutil.Duration(defaultLifetime)
	}
	sb, err := opts.Sandbox.Create(ctx, conn)
	if err != nil {
		return err
	}
	if opts.Remove {
		defer cmdutil.Closing(sb, &err)
	} else {
		defer func() { err = cmdutil.KeepStatus(err, sb.Detach()) }()
	}
	fmt.Fprintf(opts.Progress, "sandbox %s\n", cmdutil.Printable(sb.ID()))
	if err := opts.Sandbox.Install(ctx, sb, opts.Progress); err != nil {
		return err
	}
	copier := opts.Transfers.In(sb, opts.Process.User, opts.IO.Err)
	if err := copier.Upload(ctx); err != nil {
		return err
	}
	err = opts.command(ctx, sb, line)
	if _, ok := errors.AsType[cmdutil.RemoteStatus](err); err != nil && !ok {
		return err
	}
	return copier.DownloadAfter(ctx, "run", err)
}

// command runs the command within its time limit.
func (o *runOptions) command(ctx context.Context, sb *sandbox.Sandbox, line string) error {
	ctx, cancel := cmdutil.WithLimit(ctx, "timeout", o.Timeout)
	defer cancel()
	return runCommand(ctx, o.IO, "run", o.JSON, sb, line, o.Process)
}
