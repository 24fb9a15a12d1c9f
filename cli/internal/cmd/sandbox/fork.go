package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/ci"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type forkOptions struct {
	IO       *cmdutil.IOStreams
	JSON     bool
	Quiet    bool
	Open     cmdutil.Opener
	ID       string
	Count    cmdutil.Count
	Lifetime cmdutil.Duration
}

// NewCmdFork returns e2bctl fork.
func NewCmdFork(f *cmdutil.Factory) *cobra.Command {
	opts := &forkOptions{IO: f.IO, Count: 1, Lifetime: cmdutil.Duration(defaultLifetime)}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "fork <id>",
		Short: "Copy a running sandbox",
		Long: `Make copies of a running sandbox, all of the same moment, and print their IDs. The
sandbox runs on. On the service a copy goes on where the original was, with its
processes, and so it does on the local cloud in gVisor; elsewhere the local cloud
copies the files, and says so.

A copy has the metadata of the original, and no other. In a CI job, kill --ci finds it
only if the original belongs to the job, and a note on stderr says if it does not.

When some copies could not be made, the status is 8 and the reasons are on stderr, or
with -o json in the list.`,
		Example: `  e2bctl fork "$ID"
  e2bctl fork "$ID" --count 5 --lifetime 1h`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.ID = f.JSON(), f.Quiet(), args[0]
			if opts.Count > maxForks {
				return cmdutil.Usagef(cmd, "--count %d: want 1 to %d", opts.Count, maxForks)
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return forkRun(cmd.Context(), f, opts)
		},
	}
	flags := cmd.Flags()
	flags.VarP(&opts.Count, "count", "n", "how many copies, 1 to 100")
	flags.Var(&opts.Lifetime, "lifetime", "how long the copies live")
	flags.Var(&opts.Lifetime, "timeout", "another name of --lifetime, as of create")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	cmd.MarkFlagsMutuallyExclusive("lifetime", "timeout")
	return cmd
}

// maxForks is the number of copies that services make in one call.
const maxForks = 100

// forkView is a copy as -o json shows it.
type forkView struct {
	sandboxView
	Memory *bool `json:"memory,omitempty"`
}

func forkRun(ctx context.Context, f *cmdutil.Factory, opts *forkOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	forks, err := conn.Fork(ctx, opts.ID, &sandbox.ForkParams{Count: int(opts.Count), Expiry: sandbox.Expiry{After: time.Duration(opts.Lifetime)}})
	if err != nil {
		return err
	}
	if err := printForks(ctx, f, opts, forks); err != nil {
		// The user does not know their IDs yet, so they would run unnoticed.
		for _, fork := range forks {
			err = cmdutil.WithClose(err, fork.Sandbox)
		}
		return err
	}
	if !opts.Quiet {
		noteUnlabelled(ctx, f, forks)
	}
	copies := make([]cmdutil.Outcome, len(forks))
	for i, fork := range forks {
		copies[i] = cmdutil.Outcome{Name: fmt.Sprintf("copy %d", i+1), Err: fork.Err}
		if fork.Err == nil {
			err = errors.Join(err, fork.Sandbox.Detach())
		} else if len(forks) > 1 {
			copies[i].Err = errors.Unwrap(fork.Err) // without the number
		}
	}
	return errors.Join(err, f.Failures(copies))
}

// noteUnlabelled prints a note in a CI job if kill --ci will not find the copies. The copies have the
// metadata of the original sandbox, and the original may not belong to this job.
func noteUnlabelled(ctx context.Context, f *cmdutil.Factory, forks []sandbox.ForkResult) {
	job, ok := ci.Find(os.Getenv)
	made := slices.IndexFunc(forks, func(fork sandbox.ForkResult) bool { return fork.Err == nil })
	if !ok || made < 0 {
		return
	}
	info, err := forks[made].Sandbox.Info(ctx)
	if err != nil {
		return // the copies are there, and have been printed
	}
	for key, value := range job.Labels() {
		if info.Metadata[key] != value {
			fmt.Fprintln(f.IO.Err, "The copies have the metadata of the original, which is not of this CI job: kill --ci does not find them.")
			return
		}
	}
}

// failedForkView is a copy that could not be made, as -o json shows it.
type failedForkView struct {
	Error *cmdutil.ErrorView `json:"error"`
}

// printForks prints the copies that were made.
func printForks(ctx context.Context, f *cmdutil.Factory, opts *forkOptions, forks []sandbox.ForkResult) error {
	views := []any{}
	filesOnly := false
	for _, fork := range forks {
		if fork.Err != nil {
			views = append(views, failedForkView{f.ErrorView(fork.Err)})
			continue
		}
		filesOnly = filesOnly || fork.Memory != nil && !*fork.Memory
		if !opts.JSON {
			if _, err := fmt.Fprintln(opts.IO.Out, fork.Sandbox.ID()); err != nil {
				return err
			}
			continue
		}
		info, err := fork.Sandbox.Info(ctx)
		if err != nil {
			return err
		}
		views = append(views, forkView{viewOf(info), fork.Memory})
	}
	if filesOnly && !opts.Quiet && !opts.JSON {
		fmt.Fprintln(opts.IO.Err, "Only the files were copied: processes do not go on in the copies.")
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, views)
	}
	return nil
}
