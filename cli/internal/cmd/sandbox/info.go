package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
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
	f.AddOfficialFormat(cmd, "f")
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
	return cmdutil.WriteTable(opts.IO.Out, opts.IO.OutWidth, []string{"FIELD", "VALUE"}, infoRows(info, time.Now(), opts.IO.OutIsTerminal))
}

func infoRows(info *sandbox.Info, now time.Time, terminal bool) [][]string {
	rows := [][]string{
		{"ID", info.ID},
		{"Template", templateName(info)},
		{"State", string(info.State)},
		{"Started", cmdutil.Moment(info.StartedAt, now, terminal)},
	}
	end := []string{"Ends", cmdutil.Moment(info.EndAt, now, terminal)}
	if info.State == sandbox.StatePaused {
		end[0] = "Paused"
	}
	rows = append(rows, end)
	if info.PauseMode != "" {
		rows = append(rows, []string{"Kept", kept(info)})
	}
	if l := info.Lifecycle; l != nil {
		rows = append(rows, []string{"On timeout", onTimeoutText(l)})
	}
	if info.Idle != 0 {
		rows = append(rows, []string{"Idle limit", info.Idle.String()})
	}
	if info.Image != "" {
		rows = append(rows, []string{"Image", info.Image})
	}
	if info.Engine != "" {
		rows = append(rows, []string{"Engine", string(info.Engine)})
	}
	for _, m := range info.Mounts {
		rows = append(rows, []string{"Mount", mountText(m)})
	}
	return append(rows,
		[]string{"CPUs", fmt.Sprint(info.CPUs)},
		[]string{"Memory", fmt.Sprintf("%d MiB", info.MemoryBytes>>20)},
		[]string{"Disk", diskText(info.DiskBytes >> 20)},
		[]string{"Daemon", info.EnvdVersion},
		[]string{"Metadata", metadataText(info.Metadata)},
	)
}

// diskText describes the disk space that a sandbox may use.
func diskText(mib int64) string {
	if mib == 0 {
		return "not limited"
	}
	return fmt.Sprintf("%d MiB", mib)
}

// mountText describes a directory or volume and its path in a sandbox.
func mountText(m sandbox.Mount) string {
	if m.Writable {
		return m.Dir + " at " + m.Path + ", writable"
	}
	return m.Dir + " at " + m.Path + ", read-only"
}

// kept describes the state that a paused sandbox has kept. The sandbox continues with this state.
func kept(info *sandbox.Info) string {
	switch {
	case info.EnvdUnresponsiveAtPause:
		return "files and memory, but its daemon did not answer: use e2bctl resume --reboot"
	case info.PauseMode == sandbox.PauseFull:
		return "files and memory"
	case info.PauseMode == sandbox.PauseFilesystem:
		return "files"
	}
	return string(info.PauseMode)
}

func onTimeoutText(l *sandbox.Lifecycle) string {
	if l.AutoResume {
		return string(l.OnTimeout) + ", resumed by requests"
	}
	return string(l.OnTimeout)
}
