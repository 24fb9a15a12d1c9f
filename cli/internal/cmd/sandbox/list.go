package sandbox

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type listOptions struct {
	IO       *cmdutil.IOStreams
	JSON     bool
	Quiet    bool
	Lines    bool // the output is JSON, with a line for each sandbox
	Wide     bool
	Watch    bool
	Open     cmdutil.Opener
	Metadata cmdutil.KeyValues
	States   states
	// reports whether another local cloud is running besides the listed one
	LocalToo func(*cmdutil.Connection) bool
}

// NewCmdList returns e2bctl ls.
func NewCmdList(f *cmdutil.Factory) *cobra.Command {
	opts := &listOptions{IO: f.IO, LocalToo: f.IsElsewhere}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Long:    "List the sandboxes of your key, running and paused, newest first as the service\nsends them. --watch goes on until it is stopped: on a terminal it draws the table\nagain, and with -o jsonl it prints a line for each sandbox that is added, changed\nor removed.",
		Example: `  e2bctl ls
  e2bctl ls -m job=42 -o json
  e2bctl ls --state paused
  e2bctl ls --watch
  e2bctl ls --jq '.[] | select(.state == "paused") | .sandboxID'
  e2bctl ls -q | xargs e2bctl kill`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			opts.Lines, opts.Wide = f.JSONLines(), f.Wide()
			if opts.Watch && !opts.Lines && (opts.JSON || opts.Quiet || !f.IO.OutIsTerminal) {
				return cmdutil.Usagef(cmd, "--watch draws a table on a terminal; for everything else use -o jsonl")
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning, nil); err != nil {
				return err
			}
			return listRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().VarP(&opts.Metadata, "metadata", "m", "only sandboxes with this metadata, repeatable")
	cmd.Flags().VarP(&opts.States, "state", "s", "only sandboxes in these states: running, paused")
	f.AddFollowFlag(cmd, &opts.Watch, "watch", "w", "go on showing changes, until it is stopped")
	f.AddOfficialFormat(cmd, "f")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func listRun(ctx context.Context, opts *listOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	list := func(ctx context.Context) ([]sandbox.Info, error) { return opts.list(ctx, conn) }
	switch {
	case opts.Watch && opts.Lines:
		return listWatch(ctx, list, opts.writeChanges())
	case opts.Watch:
		return listWatch(ctx, list, opts.redraw())
	}
	// The process ends with this list, so most garbage need not be collected: with thousands of
	// sandboxes that takes a third of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	infos, err := list(ctx)
	if err != nil {
		return err
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
	return opts.writeTable(opts.IO.Out, infos, opts.IO.OutIsTerminal)
}

// list returns the sandboxes that the flags select.
func (o *listOptions) list(ctx context.Context, conn *cmdutil.Connection) ([]sandbox.Info, error) {
	var infos []sandbox.Info
	for info, err := range conn.List(ctx, &sandbox.ListParams{Metadata: o.Metadata, States: o.States}) {
		if err != nil {
			return nil, err
		}
		if len(infos) == cap(infos) {
			infos = slices.Grow(infos, len(infos)+1) // append grows a long slice by a quarter only, and copies it more often
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// writeTable writes a table of sandboxes. If relative is set, its times are relative to now, for
// people.
func (o *listOptions) writeTable(w io.Writer, infos []sandbox.Info, relative bool) error {
	if o.Wide {
		return writeWide(w, o.IO.OutWidth, infos, relative)
	}
	return writeSandboxes(w, o.IO.OutWidth, infos, relative)
}

// writeWide works like [writeSandboxes], with columns for the resources and the envd of each sandbox.
func writeWide(w io.Writer, width int, infos []sandbox.Info, relative bool) error {
	header, rows := sandboxTable(infos, relative)
	last := len(header) - 1
	header = slices.Insert(header, last, "CPUS", "MEMORY", "DISK", "ENVD")
	for i, info := range infos {
		rows[i] = slices.Insert(rows[i], last, strconv.Itoa(info.CPUs),
			fmt.Sprintf("%d MiB", info.MemoryBytes>>20), fmt.Sprintf("%d MiB", info.DiskBytes>>20), info.EnvdVersion)
	}
	return cmdutil.WriteTable(w, width, header, rows)
}

// writeSandboxes writes a table of sandboxes; if terminal is set, its times are relative to now.
func writeSandboxes(w io.Writer, width int, infos []sandbox.Info, terminal bool) error {
	header, rows := sandboxTable(infos, terminal)
	return cmdutil.WriteTable(w, width, header, rows)
}

func sandboxTable(infos []sandbox.Info, relative bool) (header []string, rows [][]string) {
	now := time.Now()
	rows = make([][]string, len(infos))
	for i, info := range infos {
		ends := cmdutil.Moment(info.EndAt, now, relative)
		if info.State == sandbox.StatePaused {
			ends = "" // it does not end by itself
		}
		rows[i] = []string{
			info.ID, templateName(&info), string(info.State),
			cmdutil.Moment(info.StartedAt, now, relative), ends, metadataText(info.Metadata),
		}
	}
	return []string{"ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "METADATA"}, rows
}
