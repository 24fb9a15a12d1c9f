package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type execOptions struct {
	IO      *cmdutil.IOStreams
	JSON    bool
	Open    cmdutil.Opener
	ID      string
	Words   []string
	Process processFlags
	Timeout cmdutil.Duration
}

// NewCmdExec returns e2bctl exec.
func NewCmdExec(f *cmdutil.Factory) *cobra.Command {
	opts := &execOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "exec [flags] <id> [--] <command>...",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox, show its output as it comes, and return its status. A
sandbox that is paused is resumed, and it is kept alive while the command runs.

A single word is a line for the shell; several words reach the command unchanged.
Flags come before the ID. A sandbox of the local cloud is found without --local.
Standard input is passed on if it is a pipe or a file; -it is for a session in this
terminal, and e2bctl connect for a shell that can be left. Redirect the output of programs
that the command leaves running: a remote service waits for that output to end. See e2bctl
help exit-codes.`,
		Example: `  e2bctl exec "$ID" -- ls -la /srv
  e2bctl exec "$ID" 'echo $HOME | wc -c'
  e2bctl exec -it "$ID" bash
  tar -c . | e2bctl exec -w app "$ID" -- tar -x`,
		Args: cmdutil.Wants("the ID of a sandbox and a command to run", cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if opts.Words, err = commandWords(cmd, args[1:]); err != nil {
				return err
			}
			if err := opts.Process.check(cmd, f); err != nil {
				return err
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return cmdutil.OwnFailure(execRun(cmd.Context(), opts))
		},
	}
	opts.Process.add(cmd)
	opts.Process.addTerminal(cmd)
	cmd.Flags().Var(&opts.Timeout, "timeout", "end the command after this time")
	cmdutil.AddOfficialName(cmd, "workdir", "cwd", "c")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func execRun(ctx context.Context, opts *execOptions) (err error) {
	line, err := shellLine(opts.Words)
	if err != nil {
		return err
	}
	ctx, cancel := cmdutil.WithLimit(ctx, "timeout", opts.Timeout)
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := conn.Connect(ctx, opts.ID, sandbox.WithExpiry(sandbox.Expiry{Renew: true})) // also keeps alive one that is paused when its lifetime is over
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err) // connected to, not created here: it keeps running
	return runCommand(ctx, opts.IO, "exec", opts.JSON, sb, line, opts.Process)
}
