package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox"
)

type infoOptions struct {
	IO   *IOStreams
	JSON bool
	Open func(context.Context) (*connection, error)
	ID   string
}

func newCmdInfo(f *Factory) *cobra.Command {
	opts := &infoOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "info <id>",
		Aliases: []string{"inspect"},
		Short:   "Show one sandbox",
		Example: `  e2bctl info "$ID"
  e2bctl info "$ID" -o json`,
		Args: wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.jsonOutput(), args[0]
			if opts.Open, err = f.place(cmd, isLocal, localRunning); err != nil {
				return err
			}
			return infoRun(cmd.Context(), opts)
		},
	}
	addLocalFlag(cmd, &isLocal)
	return cmd
}

func infoRun(ctx context.Context, opts *infoOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer closing(conn, &err)
	info, err := conn.Info(ctx, opts.ID)
	if err != nil {
		return err
	}
	if opts.JSON {
		return writeJSON(opts.IO.Out, viewOf(info))
	}
	now := time.Now()
	return writeTable(opts.IO.Out, []string{"FIELD", "VALUE"}, [][]string{
		{"ID", info.ID},
		{"Template", templateName(info)},
		{"State", string(info.State)},
		{"Started", moment(info.StartedAt, now, opts.IO.OutIsTerminal)},
		{"Ends", moment(info.EndAt, now, opts.IO.OutIsTerminal)},
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
