package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type resizeOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Open  cmdutil.Opener
	ID    string
	Sizes cmdutil.SizeFlags
}

// NewCmdResize returns e2bctl resize.
func NewCmdResize(f *cmdutil.Factory) *cobra.Command {
	opts := &resizeOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "resize <id>",
		SuggestFor: []string{"scale", "update", "set-resources"},
		Short:      "Change the processors, memory and disk of a running sandbox",
		Long: `Change the resources of a running sandbox of a local cloud, and print its ID. What no
flag names stays as it is. The new limits hold at once, also for programs that run; new
programs count them, and those that run keep the numbers of their start. Memory and disk
below their use are refused.`,
		Example: `  e2bctl resize "$ID" --cpus 4 --memory 8g
  e2bctl resize "$ID" --disk 20g`,
		Args: cmdutil.Wants("the ID of a sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if opts.Sizes.Resources() == (sandbox.Resources{}) {
				return cmdutil.Usagef(cmd, "want a change: --cpus, --memory or --disk")
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return resizeRun(cmd.Context(), opts)
		},
	}
	opts.Sizes.Add(cmd.Flags())
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func resizeRun(ctx context.Context, opts *resizeOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	if err := conn.Resize(ctx, opts.ID, opts.Sizes.Resources()); err != nil {
		return err
	}
	return writeChanged(ctx, conn, opts.IO, opts.ID, opts.JSON)
}
