// Package template implements e2bctl template: templates of sandboxes.
package template

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// NewCmdTemplate returns e2bctl template.
func NewCmdTemplate(f *cmdutil.Factory) *cobra.Command {
	group := cmdutil.NewGroup("template", "Manage the templates that sandboxes are made from",
		newCmdList(f), newCmdInfo(f), newCmdRemove(f), newCmdTag(f), newCmdPublish(f, true), newCmdPublish(f, false),
		newCmdBuild(f), newCmdStatus(f), newCmdLogs(f), newCmdInit(f), newCmdMigrate())
	group.Aliases = []string{"tpl"}
	return group
}

// command returns a command that makes calls about templates.
func command(f *cmdutil.Factory, cmd *cobra.Command, run func(ctx context.Context, templates *api.TemplateService, args []string) error) *cobra.Command {
	return f.Connected(cmd, cmdutil.LocalRunning, func(ctx context.Context, conn *cmdutil.Connection, args []string) error {
		return run(ctx, conn.Templates, args)
	})
}

// newCmdMigrate returns the hidden command migrate. E2B's official CLI has a command of that name.
// In e2bctl the command only returns an error that names its replacement.
func newCmdMigrate() *cobra.Command {
	return &cobra.Command{
		Use:                "migrate",
		Short:              "Say what takes the place of the official CLI's template migrate",
		Hidden:             true,
		DisableFlagParsing: true,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.DisableFlagParsing = false // -o json works here, too
			if err := cmd.ParseFlags(args); err != nil {
				return cmdutil.Usagef(cmd.Parent(), "%w", err)
			}
			return cmdutil.Usagef(cmd.Parent(), "e2b.toml is not read: e2bctl template build takes what it has as flags")
		},
	}
}

// templateView is a template as -o json shows it, with the field names of the API.
type templateView struct {
	TemplateID    string     `json:"templateID"`
	Names         []string   `json:"names"`
	Public        bool       `json:"public"`
	BuildID       string     `json:"buildID,omitempty"`
	BuildStatus   string     `json:"buildStatus,omitempty"`
	BuildCount    int64      `json:"buildCount"`
	SpawnCount    int64      `json:"spawnCount"`
	CPUCount      int        `json:"cpuCount"`
	MemoryMB      int64      `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	EnvdVersion   string     `json:"envdVersion,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt,omitempty"`
	Engine        string     `json:"engine,omitempty"`
}

func viewOf(t api.Template) templateView {
	return templateView{
		TemplateID: t.ID, Names: namesOf(t), Public: t.Public, BuildID: t.BuildID, BuildStatus: string(t.BuildStatus),
		BuildCount: t.BuildCount, SpawnCount: t.SpawnCount, CPUCount: t.CPUs, MemoryMB: t.MemoryBytes >> 20, DiskSizeMB: t.DiskBytes >> 20,
		EnvdVersion: t.EnvdVersion, CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(), LastSpawnedAt: utc(t.LastSpawnedAt),
		Engine: string(t.Engine),
	}
}

// namesOf returns the names of a template. An older service sends only names without the team, and
// namesOf then returns these.
func namesOf(t api.Template) []string {
	if len(t.Names) > 0 {
		return t.Names
	}
	return append([]string{}, t.Aliases...)
}

func nameText(t api.Template) string { return strings.Join(namesOf(t), ", ") }

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}
