package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// processFlags are the flags for the start of a command in a sandbox.
type processFlags struct {
	User    string
	Cwd     string
	Envs    cmdutil.KeyValues
	NoStdin bool
	Stdin   bool // pass on standard input even if it is a terminal
	TTY     bool
}

func (p *processFlags) add(cmd *cobra.Command) {
	p.addStart(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&p.NoStdin, "no-stdin", "n", false, "do not pass standard input on, even if it is a pipe or a file")
	flags.SetInterspersed(false) // flags after the command belong to the command
}

// addStart adds the flags of every command that starts a program in a sandbox.
func (p *processFlags) addStart(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&p.User, "user", "u", "", "run as user `NAME` (default: user)")
	flags.StringVarP(&p.Cwd, "workdir", "w", "", "run in `DIR`, relative to the user's home")
	flags.VarP(&p.Envs, "env", "e", "environment variable for the command, repeatable")
}

// addTerminal adds the flags for an interactive command.
func (p *processFlags) addTerminal(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&p.Stdin, "interactive", "i", false, "pass standard input on, even if it is a terminal")
	flags.BoolVarP(&p.TTY, "tty", "t", false, "run in a terminal, shown in this one")
	cmd.MarkFlagsMutuallyExclusive("no-stdin", "interactive")
	cmd.MarkFlagsMutuallyExclusive("no-stdin", "tty")
}

// check refuses the flag for a terminal if this process has no terminal.
func (p *processFlags) check(cmd *cobra.Command, f *cmdutil.Factory) error {
	switch {
	case p.TTY && f.JSON():
		return cmdutil.Usagef(cmd, "--tty and -o json exclude each other: a terminal shows its output")
	case p.TTY && !f.IO.InIsTerminal:
		return cmdutil.Usagef(cmd, "--tty needs a terminal as standard input; leave it out to pass on a pipe or a file")
	}
	return nil
}

// commandWords removes the -- that cobra leaves after the first argument. It refuses an empty
// command. It also refuses a command that begins with a dash: that is a flag of e2bctl in the wrong
// place, and the sandbox's shell would take it for a flag of the shell.
func commandWords(cmd *cobra.Command, words []string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, cmdutil.Usagef(cmd, "want a command to run")
	}
	if strings.HasPrefix(words[0], "-") {
		return nil, cmdutil.Usagef(cmd, "%q stands where the command begins: flags of e2bctl come first (%s)", words[0], cmd.UseLine())
	}
	return words, nil
}

// commandView is the JSON of a finished command.
type commandView struct {
	SandboxID string `json:"sandboxID"`
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Status    string `json:"status"`              // the status in words: "exit status 3", "signal: killed"
	Signal    int    `json:"signal,omitempty"`    // the signal that ended the command
	Truncated bool   `json:"truncated,omitempty"` // the middle of stdout or stderr is missing
	// a process that the command started still had the output open after the command's end
	Held bool `json:"outputHeld,omitempty"`
}

// runCommand runs line in sb for the e2bctl command called name. If the status
// of the line is not 0 it returns a cmdutil.RemoteStatus.
func runCommand(ctx context.Context, ios *cmdutil.IOStreams, name string, asJSON bool, sb *sandbox.Sandbox, line string, process processFlags) error {
	if process.TTY {
		return runTerminal(ctx, ios, sb, line, process)
	}
	params := &sandbox.CommandParams{User: process.User, Cwd: process.Cwd, Envs: process.Envs}
	if process.Stdin || ios.InIsData && !process.NoStdin {
		params.Stdin = ios.In
	} else if ios.InIsTerminal && readsCommands(line) {
		fmt.Fprintf(ios.Err, "e2bctl: %s: %s has no input here; a session in this terminal is e2bctl exec -it <id> %s\n", name, cmdutil.Printable(line), cmdutil.Printable(line))
	}
	if !asJSON {
		params.Stdout, params.Stderr, params.MaxOutputBytes = ios.Out, ios.RawErr, -1
	}
	result, err := sb.Commands.Run(ctx, line, params)
	if _, exited := errors.AsType[*sandbox.ExitError](err); err != nil && !exited {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	status := cmdutil.ExitStatus(result)
	if asJSON {
		view := commandView{
			SandboxID: sb.ID(), ExitCode: status, Status: result.Status, Stdout: result.Stdout, Stderr: result.Stderr,
			Signal: result.Signal, Truncated: result.Truncated(), Held: result.OutputHeld,
		}
		if err := cmdutil.WriteJSON(ios.Out, view); err != nil {
			return err
		}
	} else {
		cmdutil.Explain(ios.Err, name, result)
	}
	if status != 0 {
		return cmdutil.RemoteStatus(status)
	}
	return nil
}

// readsCommands reports whether line is only the name of a program, such as a shell, that without
// arguments reads commands from standard input. Such a program ends at once if there is no input.
func readsCommands(line string) bool {
	switch path.Base(line) {
	case "sh", "bash", "dash", "zsh", "fish", "python", "python3", "ipython", "node":
		return true
	}
	return false
}
