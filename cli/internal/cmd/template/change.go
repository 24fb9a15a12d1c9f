package template

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

func newCmdRemove(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "rm <template>...",
		Aliases: []string{"delete", "dl"},
		Short:   "Delete templates",
		Long: `Delete templates with all their builds and tags, and print their names. One that
sandboxes are made from, running or paused, is not deleted.`,
		Example: `  e2bctl template rm prepared`,
		Args:    cmdutil.Wants("the IDs or names of templates", cobra.MinimumNArgs(1)),
	}, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		return f.EachNamed(args, func(name string) error { return templates.Delete(ctx, name) })
	})
}

// newCmdPublish returns e2bctl template publish or unpublish.
func newCmdPublish(f *cmdutil.Factory, public bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "publish <template>...",
		Aliases: []string{"pb"},
		Short:   "Let other teams use templates",
		Long:    "Let other teams use templates, and print their names. On the local cloud, which has\none team, that is written down and changes nothing.",
		Example: `  e2bctl template publish prepared`,
	}
	if !public {
		cmd = &cobra.Command{
			Use:     "unpublish <template>...",
			Aliases: []string{"upb"},
			Short:   "Keep templates for your own team",
			Example: `  e2bctl template unpublish prepared`,
		}
	}
	cmd.Args = cmdutil.Wants("the IDs or names of templates", cobra.MinimumNArgs(1))
	return command(f, cmd, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		return f.EachNamed(args, func(name string) error {
			_, err := templates.Update(ctx, name, &api.TemplateUpdateParams{Public: &public})
			return err
		})
	})
}
