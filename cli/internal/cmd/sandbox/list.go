package sandbox

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type listOptions struct {
	IO       *cmdutil.IOStreams
	JSON     bool
	Quiet    bool
	Open     cmdutil.Opener
	Metadata cmdutil.KeyValues
	States   states
	LocalToo func(*cmdutil.Connection) bool // reports whether another local cloud is running than the one listed
}

// NewCmdList returns e2bctl ls.
func NewCmdList(f *cmdutil.Factory) *cobra.Command {
	opts := &listOptions{IO: f.IO, LocalToo: f.IsElsewhere}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Long:    "List the sandboxes of your key, running and paused, newest first as the service\nsends them.",
		Example: `  e2bctl ls
  e2bctl ls -m job=42 -o json
  e2bctl ls --state paused
  e2bctl ls -q | xargs e2bctl kill`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning, nil); err != nil {
				return err
			}
			return listRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().VarP(&opts.Metadata, "metadata", "m", "only sandboxes with this metadata, repeatable")
	cmd.Flags().VarP(&opts.States, "state", "s", "only sandboxes in these states: running, paused")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func listRun(ctx context.Context, opts *listOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	infos := []sandbox.Info{}
	for info, err := range conn.List(ctx, &sandbox.ListParams{Metadata: opts.Metadata, States: opts.States}) {
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	switch {
	case opts.JSON:
		views := make([]sandboxView, len(infos))
		for i, info := range infos {
			views[i] = viewOf(&info)
		}
		return cmdutil.WriteJSON(opts.IO.Out, views)
	case opts.Quiet:
		for _, info := range infos {
			if _, err := fmt.Fprintln(opts.IO.Out, cmdutil.Printable(info.ID)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(infos) == 0 && opts.LocalToo(conn) {
		fmt.Fprintln(opts.IO.Err, "A local cloud is running: e2bctl ls --local lists its sandboxes.")
	}
	if len(infos) == 0 && opts.IO.OutIsTerminal {
		fmt.Fprintln(opts.IO.Err, "No sandboxes.")
		return nil
	}
	return writeSandboxes(opts.IO.Out, opts.IO.OutWidth, infos, opts.IO.OutIsTerminal)
}

// writeSandboxes writes a table of sandboxes; on a terminal its times are relative.
func writeSandboxes(w io.Writer, width int, infos []sandbox.Info, terminal bool) error {
	now := time.Now()
	rows := make([][]string, len(infos))
	for i, info := range infos {
		ends := cmdutil.Moment(info.EndAt, now, terminal)
		if info.State == sandbox.StatePaused {
			ends = "" // it does not end by itself
		}
		rows[i] = []string{
			info.ID, templateName(&info), string(info.State),
			cmdutil.Moment(info.StartedAt, now, terminal), ends, metadataText(info.Metadata),
		}
	}
	return cmdutil.WriteTable(w, width, []string{"ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "METADATA"}, rows)
}
