// Package cli implements the command e2bctl. Each command has an options struct, a constructor and
// a run function. These three are in one file. The files of a family of commands are in a package
// under internal/cmd. root.go assembles the commands. Commands get their dependencies from a
// [cmdutil.Factory] and read and write through [cmdutil.IOStreams]. Only exit.go maps errors to
// exit statuses, and nothing in this package ends the process. The program in cli/manual writes a
// page about each command.
package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// hurriedGrace limits the clean-up after a second signal. It is not 0, because timeout(1) and some
// shells send the same signal twice in a row, once to the process and once to its process group.
// Programs in a sandbox must be stopped in that case, too.
const hurriedGrace = 2 * time.Second

// Main runs e2bctl with the arguments, streams and signals of this process and
// returns the status to exit with. It is called once in a process.
func Main() int {
	if status, is := firstProcess(); is {
		return status
	}
	ios := cmdutil.SystemStreams()
	ctx, told := notifyContext(context.Background())

	done := make(chan int, 1)
	go func() { done <- run(ctx, ios, os.Args[1:]) }()
	select {
	case code := <-done:
		return code
	case <-told.first:
	}
	// The command now cleans up. It may hang on a service that no longer answers;
	// in that case the process ends without it.
	hurried, patient := time.After(hurriedGrace), time.After(told.stopping.Allowed()+cmdutil.CleanupGrace)
	select {
	case code := <-done:
		return code
	case <-patient:
		return exitCode(context.Cause(ctx))
	case <-told.second:
	}
	select {
	case code := <-done:
		return code
	case <-hurried:
		return exitCode(context.Cause(ctx))
	}
}

// Run runs e2bctl with the given arguments (without the program's name) and streams, and returns
// its exit status. Run treats no stream as a terminal. A nil stdin is empty. Cancelling ctx stops
// the command, which then still cleans up.
func Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args []string) int {
	return run(ctx, cmdutil.NewIOStreams(stdin, stdout, stderr), args)
}

// Commands returns e2bctl with all of its commands. It is for programs that describe the commands,
// such as the program that writes the manual. [Run] runs the commands.
func Commands() *cobra.Command {
	ios := cmdutil.NewIOStreams(nil, io.Discard, io.Discard)
	root := newCmdRoot(cmdutil.NewFactory(ios, describe), nil)
	addCompletion(root, nil)
	return root
}

func run(ctx context.Context, ios *cmdutil.IOStreams, args []string) int {
	args = translate(args)
	f := cmdutil.NewFactory(ios, describe)
	root := newCmdRoot(f, args)
	if err := checkHandedOver(); err != nil {
		f.ReadOutputFlag(args)
		return report(ctx, f, root, err)
	}
	addCompletion(root, args)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		addLiveCompletion(f, root)
	}
	// Any failure before a command has started is a mistake in the command line.
	var started bool
	onStart(root, func(cmd *cobra.Command) error {
		if err := f.Begin(cmd); err != nil {
			return err
		}
		started = true
		if needsOther(cmd) {
			err := handOver(cmd.Context(), ios, args)
			if name := cmd.Name(); name == "run" || name == "connect" { // they return the status of a remote command
				err = cmdutil.OwnFailure(err)
			}
			return err
		}
		if isTraced(cmd) {
			cmd.SetContext(f.Trace(cmd.Context(), cmd.CommandPath()))
		}
		return nil
	})
	help := &helper{io: ios}
	help.serve(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !started {
		f.ReadOutputFlag(args)
		err = &cmdutil.UsageError{Err: err, Command: cmd.CommandPath()}
	}
	err = cmp.Or(err, help.err)
	status := report(ctx, f, cmd, err)
	f.EndTrace(status)
	return status
}

// isTraced reports whether a command gets a span. Commands that work with sandboxes or the service
// get a span. Commands that run a local cloud do not, because their span would last as long as the
// cloud.
func isTraced(cmd *cobra.Command) bool {
	runs := cmd.Name() == "serve" || cmd.Parent() != nil && cmd.Parent().Name() == "local"
	return cmd.Name() != "version" && cmd.Parent() != nil && !runs
}
