package template

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List templates",
		Long: `List the templates of your key. Those that are only snapshots of sandboxes are in
e2bctl snapshot ls. -q prints their IDs only.`,
		Example: `  e2bctl template ls
  e2bctl template ls --local -o json`,
		Args: cmdutil.NoArguments,
	}, func(ctx context.Context, templates *api.TemplateService, _ []string) error {
		var all []api.Template
		for t, err := range templates.List(ctx, nil) {
			if err != nil {
				return err
			}
			all = append(all, t)
		}
		return writeTemplates(f, all)
	})
}

func writeTemplates(f *cmdutil.Factory, all []api.Template) error {
	now := time.Now()
	views, ids, rows := make([]templateView, len(all)), make([]string, len(all)), make([][]string, len(all))
	for i, t := range all {
		views[i], ids[i] = viewOf(t), t.ID
		rows[i] = []string{
			t.ID, nameText(t), access(t), string(t.BuildStatus), strconv.Itoa(t.CPUs), fmt.Sprintf("%d MiB", t.MemoryBytes>>20),
			cmdutil.Moment(t.UpdatedAt, now, f.IO.OutIsTerminal),
		}
	}
	header := []string{"ID", "NAMES", "ACCESS", "STATUS", "CPUS", "MEMORY", "UPDATED"}
	if f.Wide() {
		header = append(header, "BUILD", "BUILDS", "SANDBOXES")
		for i, t := range all {
			rows[i] = append(rows[i], t.BuildID, strconv.FormatInt(t.BuildCount, 10), strconv.FormatInt(t.SpawnCount, 10))
		}
	}
	return f.WriteList(cmdutil.List{Kind: "templates", Views: views, Names: ids, Header: header, Rows: rows})
}

func access(t api.Template) string {
	if t.Public {
		return "public"
	}
	return "private"
}
