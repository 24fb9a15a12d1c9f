package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox"
)

type execOptions struct {
	IO      *IOStreams
	JSON    bool
	Open    func(context.Context) (*connection, error)
	ID      string
	Words   []string
	Process processFlags
	Timeout durationValue
}

// processFlags say how a command is started in a sandbox.
type processFlags struct {
	User    string
	Cwd     string
	Envs    keyValues
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

func newCmdExec(f *Factory) *cobra.Command {
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
		Args: wants("the ID of a sandbox and a command to run", cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.jsonOutput(), args[0]
			if opts.Words, err = commandWords(cmd, args[1:]); err != nil {
				return err
			}
			if opts.Open, err = f.place(cmd, isLocal, localRunning); err != nil {
				return err
			}
			return ownFailure(execRun(cmd.Context(), opts))
		},
	}
	opts.Process.add(cmd)
	cmd.Flags().Var(&opts.Timeout, "timeout", "end the command after this time")
	addLocalFlag(cmd, &isLocal)
	return cmd
}

// commandWords removes the -- that cobra leaves after the first argument, and
// refuses an empty command.
func commandWords(cmd *cobra.Command, words []string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, usagef(cmd, "want a command to run")
	}
	return words, nil
}

func execRun(ctx context.Context, opts *execOptions) (err error) {
	line, err := shellLine(opts.Words)
	if err != nil {
		return err
	}
	ctx, cancel := withLimit(ctx, time.Duration(opts.Timeout))
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer closing(conn, &err)
	sb, err := conn.Connect(ctx, opts.ID)
	if err != nil {
		return err
	}
	defer closing(sb, &err) // connected to, not created here: it keeps running
	return runCommand(ctx, opts.IO, "exec", opts.JSON, sb, line, opts.Process)
}

// withLimit limits ctx to d, unless d is 0.
func withLimit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
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
// of the line is not 0 it returns a remoteStatus.
func runCommand(ctx context.Context, ios *IOStreams, name string, asJSON bool, sb *sandbox.Sandbox, line string, process processFlags) error {
	params := &sandbox.CommandParams{User: process.User, Cwd: process.Cwd, Envs: process.Envs.m}
	if ios.InIsData && !process.NoStdin {
		params.Stdin = ios.In
	}
	if !asJSON {
		params.Stdout, params.Stderr, params.MaxOutput = ios.Out, ios.Err, -1
	}
	result, err := sb.Commands.Run(ctx, line, params)
	if _, exited := errors.AsType[*sandbox.ExitError](err); err != nil && !exited {
		return &ownError{err: err, running: true}
	}
	status := exitStatus(result)
	if asJSON {
		view := commandView{
			SandboxID: sb.ID(), ExitCode: status, Status: result.Status, Stdout: result.Stdout, Stderr: result.Stderr,
			Signal: result.Signal, Truncated: result.StdoutDropped+result.StderrDropped > 0, Held: result.OutputHeld,
		}
		if err := writeJSON(ios.Out, view); err != nil {
			return err
		}
	} else {
		explain(ios.Err, name, result)
	}
	if status != 0 {
		return remoteStatus(status)
	}
	return nil
}

// explain writes what a command cannot say itself: which signal ended it, why,
// if the sandbox knows, and that what it left running still has its output,
// which is lost from now on.
func explain(w io.Writer, name string, result *sandbox.CommandResult) {
	if plain := fmt.Sprintf("exit status %d", result.ExitCode); result.ExitCode != 0 && result.Status != "" && result.Status != plain {
		fmt.Fprintf(w, "e2bctl: %s: the command failed: %s\n", name, printable(result.Status))
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

// ownFailure marks an error that is not a remote status as a failure of e2bctl,
// so that its status cannot be mistaken for the command's.
func ownFailure(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[remoteStatus](err); ok {
		return err
	}
	if _, ok := errors.AsType[*ownError](err); ok {
		return err
	}
	return &ownError{err: err}
}

// closing is for defer: it closes c and joins the error to *err.
func closing(c io.Closer, err *error) { *err = keepStatus(*err, c.Close()) }

// withClose closes what a failed step leaves behind, and returns both errors.
func withClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
