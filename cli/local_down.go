package cli

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// localDownWait is how long a local cloud may take to end its sandboxes.
const localDownWait = 20 * time.Second

type localDownOptions struct {
	IO    *IOStreams
	Quiet bool
}

func newCmdLocalDown(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the local cloud and every sandbox in it",
		Long:  "End the running local cloud of this user and every sandbox in it, and wait until\nit has ended. When none runs, that is success.",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return localDownRun(cmd.Context(), &localDownOptions{IO: f.IO, Quiet: f.flags.quiet})
		},
	}
}

func localDownRun(ctx context.Context, opts *localDownOptions) error {
	place, err := findLocalPlace()
	if err != nil {
		return err
	}
	pid, err := place.holder()
	if err != nil {
		return err
	}
	if pid == 0 {
		if !opts.Quiet {
			fmt.Fprintln(opts.IO.Err, "no local cloud runs")
		}
		return nil
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("telling process %d to end: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, localDownWait)
	defer cancel()
	return place.waitEnded(ctx, pid)
}

// waitEnded returns once process pid is no longer the local cloud.
func (p localPlace) waitEnded(ctx context.Context, pid int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		holder, err := p.holder()
		if err != nil || holder != pid {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for process %d to end: %w", pid, context.Cause(ctx))
		}
	}
}
