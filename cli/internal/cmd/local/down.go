package local

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

type downOptions struct {
	IO    *cmdutil.IOStreams
	Quiet bool
}

func newCmdDown(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the local cloud and every sandbox in it",
		Long:  "End the running local cloud of this user and every sandbox in it, and wait until\nit has ended. If none is running, that is not an error.",
		Args:  cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return downRun(cmd.Context(), &downOptions{IO: f.IO, Quiet: f.Quiet()})
		},
	}
}

func downRun(ctx context.Context, opts *downOptions) error {
	place, err := localcloud.Find()
	if err != nil {
		return err
	}
	found, err := place.End(ctx)
	if err == nil && !found && !opts.Quiet {
		fmt.Fprintln(opts.IO.Err, "no local cloud is running")
	}
	return err
}
