package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

var errIsDir = errors.New("it is a directory: remove it with -r")

func newCmdCat(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "cat <id>:<file>...",
		Short:   "Write files to stdout",
		Long:    "Write files of a sandbox to stdout, one after another, as they are.",
		Example: `  e2bctl fs cat "$ID":out/report.csv | head`,
		Args:    cmdutil.Wants("files as <id>:<file>", cobra.MinimumNArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error {
		for _, path := range paths {
			if err := cat(ctx, f.IO.Out, sb, path, user); err != nil {
				return err
			}
		}
		return nil
	})
}

func cat(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, path, user string) error {
	r, err := sb.Files.Open(ctx, path, &sandbox.FileParams{User: user})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, r.Close())
}

// changeView is a change of a file as -o json shows it.
type changeView struct {
	Type sandbox.FileEventType `json:"type"`
	Name string                `json:"name"`
}

func newCmdWatch(f *cmdutil.Factory) *cobra.Command {
	var recursive bool
	cmd := command(f, &cobra.Command{
		Use:   "watch <id>:<directory>",
		Short: "Print each change in a directory",
		Long: `Print each change in a directory of a sandbox as it happens: create, write, remove, rename
or chmod, and the name of the file; with -o json, one object a line. It ends when it is
interrupted, and when the directory or the sandbox is gone.`,
		Example: `  e2bctl fs watch -r "$ID":src`,
		Args:    cmdutil.Wants("one directory as <id>:<directory>", cobra.ExactArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) (err error) {
		watcher, err := sb.Files.Watch(ctx, paths[0], &sandbox.WatchParams{User: user, Recursive: recursive})
		if err != nil {
			return err
		}
		defer cmdutil.Closing(watcher, &err)
		fmt.Fprintf(f.Progress(), "watching %s\n", cmdutil.Printable(paths[0]))
		for event, err := range watcher.Events(ctx) {
			if err != nil {
				return err
			}
			if f.JSON() {
				err = cmdutil.WriteJSONLine(f.IO.Out, changeView{event.Type, event.Name})
			} else {
				_, err = fmt.Fprintf(f.IO.Out, "%-6s  %s\n", event.Type, cmdutil.Printable(event.Name))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also watch the directories below")
	return cmd
}
