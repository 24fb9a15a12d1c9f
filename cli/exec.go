package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

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

// processFlags say how a command is started in a sandbox.
type processFlags struct {
	User    string
	Cwd     string
	Envs    cmdutil.KeyValues
	NoStdin bool
}

func (p *processFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&p.User, "user", "u", "", "run as user `NAME` (default: user)")
	flags.StringVarP(&p.Cwd, "workdir", "w", "", "run in `DIR`, relative to the user's home")
	flags.VarP(&p.Envs, "env", "e", "variable of the command, repeatable")
	flags.BoolVarP(&p.NoStdin, "no-stdin", "n", false, "do not pass standard input on, even when it is a pipe or a file")
	flags.SetInterspersed(false) // what follows the command belongs to the command
}

func newCmdExec(f *cmdutil.Factory) *cobra.Command {
	opts := &execOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "exec [flags] <id> [--] <command>...",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a running sandbox, with both output streams as they come, and
return its status. One word is a line of shell; several are words that reach the
command unchanged. Flags come before the ID. Standard input is passed on when it
is a pipe or a file. Redirect the output of what the command leaves running: on a
service the command does not end before. See e2bctl help exit-codes.`,
		Example: `  e2bctl exec "$ID" -- ls -la /srv
  e2bctl exec "$ID" 'echo $HOME | wc -c'
  tar -c . | e2bctl exec -w app "$ID" -- tar -x`,
		Args: cmdutil.Wants("the ID of a sandbox and a command to run", cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if opts.Words, err = commandWords(cmd, args[1:]); err != nil {
				return err
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning); err != nil {
				return err
			}
			return cmdutil.OwnFailure(execRun(cmd.Context(), opts))
		},
	}
	opts.Process.add(cmd)
	cmd.Flags().Var(&opts.Timeout, "timeout", "end the command after this time")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// commandWords removes the -- that cobra leaves after the first argument, and
// refuses an empty command.
func commandWords(cmd *cobra.Command, words []string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, cmdutil.Usagef(cmd, "want a command to run")
	}
	return words, nil
}

func execRun(ctx context.Context, opts *execOptions) (err error) {
	line, err := shellLine(opts.Words)
	if err != nil {
		return err
	}
	ctx, cancel := cmdutil.WithLimit(ctx, time.Duration(opts.Timeout))
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := conn.Connect(ctx, opts.ID)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err) // connected to, not created here: it keeps running
	return runCommand(ctx, opts.IO, "exec", opts.JSON, sb, line, opts.Process)
}

// commandView is what -o json prints for a finished command.
type commandView struct {
	SandboxID string `json:"sandboxID"`
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Status    string `json:"status"`               // in words: "exit status 3", "signal: killed"
	Signal    int    `json:"signal,omitempty"`     // the signal that ended it
	Truncated bool   `json:"truncated,omitempty"`  // the middle of an output is missing
	Held      bool   `json:"outputHeld,omitempty"` // a process that it left behind kept the output open
}

// runCommand runs line in sb for the e2bctl command called name. If the status
// of the line is not 0 it returns a cmdutil.RemoteStatus.
func runCommand(ctx context.Context, ios *cmdutil.IOStreams, name string, asJSON bool, sb *sandbox.Sandbox, line string, process processFlags) error {
	params := &sandbox.CommandParams{User: process.User, Cwd: process.Cwd, Envs: process.Envs}
	if ios.InIsData && !process.NoStdin {
		params.Stdin = ios.In
	}
	if !asJSON {
		params.Stdout, params.Stderr, params.MaxOutput = ios.Out, ios.Err, -1
	}
	result, err := sb.Commands.Run(ctx, line, params)
	if _, exited := errors.AsType[*sandbox.ExitError](err); err != nil && !exited {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	status := exitStatus(result)
	if asJSON {
		view := commandView{
			SandboxID: sb.ID(), ExitCode: status, Status: result.Status, Stdout: result.Stdout, Stderr: result.Stderr,
			Signal: result.Signal, Truncated: result.StdoutDropped+result.StderrDropped > 0, Held: result.OutputHeld,
		}
		if err := cmdutil.WriteJSON(ios.Out, view); err != nil {
			return err
		}
	} else {
		explain(ios.Err, name, result)
	}
	if status != 0 {
		return cmdutil.RemoteStatus(status)
	}
	return nil
}

// explain writes what a command cannot say itself: which signal ended it, why,
// if the sandbox knows, and that what it left running still has its output,
// which is lost from now on.
func explain(w io.Writer, name string, result *sandbox.CommandResult) {
	if plain := fmt.Sprintf("exit status %d", result.ExitCode); result.ExitCode != 0 && result.Status != "" && result.Status != plain {
		fmt.Fprintf(w, "e2bctl: %s: the command failed: %s\n", name, cmdutil.Printable(result.Status))
	}
	if result.OutputHeld {
		fmt.Fprintf(w, "e2bctl: %s: the command ended, and what it left running still has its output: what that prints from now on is lost. Redirect it: server >server.log 2>&1 &\n", name)
	}
}

// exitStatus returns the status as a shell does: 128 + n after signal n.
func exitStatus(result *sandbox.CommandResult) int {
	switch {
	case result.Signal > 0:
		return exitSignalled + result.Signal
	case result.ExitCode < 0, result.ExitCode > 255: // not a status that Linux has
		return exitFailed
	}
	return result.ExitCode
}
