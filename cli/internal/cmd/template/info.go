package template

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// detailView is a template with its builds and tags as -o json shows it.
type detailView struct {
	templateView
	Builds []buildView `json:"builds"`
	Tags   []tagView   `json:"tags"`
}

type buildView struct {
	BuildID    string     `json:"buildID"`
	Status     string     `json:"status"`
	CPUCount   int        `json:"cpuCount"`
	MemoryMB   int64      `json:"memoryMB"`
	DiskSizeMB int64      `json:"diskSizeMB,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

func newCmdInfo(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "info <template>",
		Aliases: []string{"inspect"},
		Short:   "Show one template with its newest builds and its tags",
		Example: `  e2bctl template info prepared
  e2bctl template info prepared -o json`,
		Args: cmdutil.Wants("the ID or name of one template", cobra.ExactArgs(1)),
	}, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		detail, err := find(ctx, templates, args[0])
		if err != nil {
			return err
		}
		tags, err := templates.Tags(ctx, detail.ID)
		if err != nil {
			return err
		}
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, detailViewOf(detail, tags))
		}
		return cmdutil.WriteTable(f.IO.Out, f.IO.OutWidth, []string{"FIELD", "VALUE"}, rowsOf(detail, tags, f.IO.OutIsTerminal))
	})
}

// find describes the template that reference names, by name or ID. It first resolves a name to an
// ID, because the API requires an ID.
func find(ctx context.Context, templates *api.TemplateService, reference string) (*api.TemplateDetail, error) {
	id := reference
	named, err := templates.Resolve(ctx, reference)
	switch {
	case err == nil:
		id = named.TemplateID
	case !errors.Is(err, api.ErrNotFound) || strings.ContainsAny(reference, "/:"):
		return nil, err
	}
	return templates.Get(ctx, id, nil)
}

func detailViewOf(detail *api.TemplateDetail, tags []api.TemplateTag) detailView {
	v := detailView{templateView: viewOf(detail.Template), Builds: make([]buildView, len(detail.Builds)), Tags: tagViewsOf(tags)}
	for i, b := range detail.Builds {
		v.Builds[i] = buildView{
			BuildID: b.ID, Status: string(b.Status), CPUCount: b.CPUs, MemoryMB: b.MemoryBytes >> 20, DiskSizeMB: b.DiskBytes >> 20,
			CreatedAt: b.CreatedAt.UTC(), FinishedAt: utc(b.FinishedAt),
		}
	}
	return v
}

func rowsOf(detail *api.TemplateDetail, tags []api.TemplateTag, terminal bool) [][]string {
	now := time.Now()
	rows := [][]string{
		{"ID", detail.ID},
		{"Names", nameText(detail.Template)},
		{"Access", access(detail.Template)},
		{"Created", cmdutil.Moment(detail.CreatedAt, now, terminal)},
		{"Updated", cmdutil.Moment(detail.UpdatedAt, now, terminal)},
		{"Sandboxes made", fmt.Sprint(detail.SpawnCount)},
	}
	if detail.Engine != "" {
		rows = append(rows, []string{"Engine", string(detail.Engine)})
	}
	if at := detail.LastSpawnedAt; at != nil {
		rows = append(rows, []string{"Last one", cmdutil.Moment(*at, now, terminal)})
	}
	for _, tag := range tags {
		rows = append(rows, []string{"Tag", tag.Name + " of build " + tag.BuildID})
	}
	for _, b := range detail.Builds {
		rows = append(rows, []string{"Build", fmt.Sprintf("%s %s, %d CPUs, %d MiB, %s", b.ID, b.Status, b.CPUs, b.MemoryBytes>>20, cmdutil.Moment(b.CreatedAt, now, terminal))})
	}
	return rows
}
