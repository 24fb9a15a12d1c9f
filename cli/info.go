package cli

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

func newCmdInfo(f *cmdutil.Factory) *cobra.Command {
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
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning); err != nil {
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

// sandboxView is a sandbox as -o json shows it, with the API's names.
type sandboxView struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	State       string            `json:"state"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
}

func viewOf(info *sandbox.Info) sandboxView {
	v := sandboxView{
		SandboxID: info.ID, TemplateID: info.TemplateID, Alias: info.Alias, State: string(info.State),
		StartedAt: info.StartedAt.UTC(), EndAt: info.EndAt.UTC(),
		CPUCount: info.CPUCount, MemoryMB: info.MemoryMB, DiskSizeMB: info.DiskSizeMB,
		EnvdVersion: info.EnvdVersion, Metadata: info.Metadata,
	}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	return v
}

// templateName returns the name that people use for the template.
func templateName(info *sandbox.Info) string {
	if info.Alias != "" {
		return info.Alias
	}
	return info.TemplateID
}
