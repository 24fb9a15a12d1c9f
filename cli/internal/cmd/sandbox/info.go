package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

type infoOptions struct {
	IO   *cmdutil.IOStreams
	JSON bool
	Open cmdutil.Opener
	ID   string
}

// NewCmdInfo returns e2bctl info.
func NewCmdInfo(f *cmdutil.Factory) *cobra.Command {
	opts := &infoOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "info <id>",
		Aliases: []string{"inspect"},
		Short:   "Show one sandbox",
		Example: `  e2bctl info "$ID"
  e2bctl info "$ID" -o json`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return infoRun(cmd.Context(), opts)
		},
	}
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func infoRun(ctx context.Context, opts *infoOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	info, err := conn.Info(ctx, opts.ID)
	if err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, viewOf(info))
	}
	now := time.Now()
	return cmdutil.WriteTable(opts.IO.Out, []string{"FIELD", "VALUE"}, [][]string{
		{"ID", info.ID},
		{"Template", templateName(info)},
		{"State", string(info.State)},
		{"Started", cmdutil.Moment(info.StartedAt, now, opts.IO.OutIsTerminal)},
		{"Ends", cmdutil.Moment(info.EndAt, now, opts.IO.OutIsTerminal)},
		{"CPUs", fmt.Sprint(info.CPUCount)},
		{"Memory", fmt.Sprintf("%d MiB", info.MemoryMB)},
		{"Disk", fmt.Sprintf("%d MiB", info.DiskSizeMB)},
		{"Daemon", info.EnvdVersion},
		{"Metadata", metadataText(info.Metadata)},
	})
}
