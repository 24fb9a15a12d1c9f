package template

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

func newCmdTag(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("tag", "Manage the tags of a template, which name its builds", newCmdTagList(f), newCmdTagAdd(f), newCmdTagRemove(f))
}

// tagView is a tag as -o json shows it, with the field names of the API.
type tagView struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func tagViewsOf(tags []api.TemplateTag) []tagView {
	views := make([]tagView, len(tags))
	for i, tag := range tags {
		views[i] = tagView{tag.Name, tag.BuildID, tag.CreatedAt.UTC()}
	}
	return views
}

func newCmdTagList(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "ls <template>",
		Aliases: []string{"list"},
		Short:   "List the tags of a template",
		Long:    "List the tags of a template with the build that each names. -q prints the tags only.",
		Example: `  e2bctl template tag ls prepared`,
		Args:    cmdutil.Wants("the ID or name of one template", cobra.ExactArgs(1)),
	}, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		tags, err := templates.Tags(ctx, args[0])
		if err != nil {
			return err
		}
		now := time.Now()
		names, rows := make([]string, len(tags)), make([][]string, len(tags))
		for i, tag := range tags {
			names[i] = tag.Name
			rows[i] = []string{tag.Name, tag.BuildID, cmdutil.Moment(tag.CreatedAt, now, f.IO.OutIsTerminal)}
		}
		return f.WriteList(cmdutil.List{
			Kind: "tags", Views: tagViewsOf(tags), Names: names, Header: []string{"TAG", "BUILD", "SINCE"}, Rows: rows,
		})
	})
}

func newCmdTagAdd(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:   "add <template>[:tag] <tag>...",
		Short: "Make tags name a build of a template",
		Long: `Make tags name the build that a template's name and tag stand for, or the one of its
default tag. A tag that is there already moves. The ID of the build is printed.`,
		Example: `  e2bctl template tag add prepared:v2 stable`,
		Args:    cmdutil.Wants("a template, which may have a tag, and the tags to give its build", cobra.MinimumNArgs(2)),
	}, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		assigned, err := templates.AssignTags(ctx, args[0], args[1:])
		if err != nil {
			return err
		}
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, struct {
				Tags    []string `json:"tags"`
				BuildID string   `json:"buildID"`
			}{append([]string{}, assigned.Tags...), assigned.BuildID})
		}
		_, err = fmt.Fprintln(f.IO.Out, cmdutil.Printable(assigned.BuildID))
		return err
	})
}

func newCmdTagRemove(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "rm <template> <tag>...",
		Aliases: []string{"delete", "remove"},
		Short:   "Remove tags of a template",
		Long:    "Remove tags of a template, and print them; the builds that they name stay. The tag default\ncannot be removed.",
		Example: `  e2bctl template tag rm prepared stable`,
		Args:    cmdutil.Wants("a template, without a tag, and the tags to remove", cobra.MinimumNArgs(2)),
	}, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		there, err := templates.Tags(ctx, args[0])
		if err != nil {
			return err
		}
		return f.EachNamed(args[1:], func(tag string) error {
			// A service deletes a missing tag without an error.
			if !slices.ContainsFunc(there, func(t api.TemplateTag) bool { return t.Name == tag }) {
				return &noTagError{args[0], tag}
			}
			return templates.RemoveTags(ctx, args[0], []string{tag})
		})
	})
}

// noTagError means that a template does not have the given tag. It matches [fs.ErrNotExist].
type noTagError struct{ template, tag string }

func (e *noTagError) Error() string {
	return fmt.Sprintf("%s has no tag %s", e.template, e.tag)
}

func (e *noTagError) Hint() string {
	return "Run e2bctl template tag ls" + cmdutil.OnLocal + " " + cmdutil.Printable(e.template) + " to list its tags."
}

func (e *noTagError) Is(target error) bool { return target == fs.ErrNotExist }
