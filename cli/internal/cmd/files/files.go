// Package files implements e2bctl fs: the files of a sandbox.
package files

import (
	"context"
	"io/fs"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// NewCmdFiles returns e2bctl fs.
func NewCmdFiles(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("fs", "List, read, change and watch files of a sandbox",
		newCmdCat(f), newCmdList(f), newCmdMakeDir(f), newCmdMove(f), newCmdRemove(f), newCmdStat(f), newCmdWatch(f))
}

// command returns a command whose arguments are paths of one sandbox, as <id>:<path>. A sandbox
// that is paused is resumed.
func command(f *cmdutil.Factory, cmd *cobra.Command, run func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error) *cobra.Command {
	var isLocal bool
	var user string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, paths, err := pathsOf(cmd, args)
		if err != nil {
			return err
		}
		return f.WithSandbox(cmd, isLocal, id, func(ctx context.Context, sb *sandbox.Sandbox) error {
			return run(ctx, sb, paths, user)
		})
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "relative paths begin in the home of user `NAME` (default: user)")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// pathsOf returns the paths on a command line and the id of their sandbox. It returns an error if
// they name different sandboxes.
func pathsOf(cmd *cobra.Command, args []string) (id string, paths []string, err error) {
	for _, arg := range args {
		sandboxID, path, ok := cmdutil.SandboxPath(arg)
		switch {
		case !ok:
			return "", nil, cmdutil.Usagef(cmd, "%s: want <id>:<path>", arg)
		case id != "" && sandboxID != id:
			return "", nil, cmdutil.Usagef(cmd, "%s and %s are two sandboxes: name one", id, sandboxID)
		}
		id, paths = sandboxID, append(paths, path)
	}
	return id, paths, nil
}

// fileView is a file as -o json shows it, with the field names of the API.
type fileView struct {
	Name     string           `json:"name"`
	Type     sandbox.FileType `json:"type"`
	Path     string           `json:"path"`
	Size     int64            `json:"size"`
	Mode     uint32           `json:"mode"`
	Perms    string           `json:"permissions"`
	Owner    string           `json:"owner"`
	Group    string           `json:"group"`
	Modified time.Time        `json:"modifiedTime"`
	Target   string           `json:"symlinkTarget,omitempty"`
}

func viewOf(i *sandbox.FileInfo) fileView {
	return fileView{i.Name, i.Type, i.Path, i.Size, uint32(i.Mode.Perm()), i.Permissions, i.Owner, i.Group, i.ModTime.UTC(), i.SymlinkTarget}
}

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	var depth cmdutil.Count = 1
	cmd := command(f, &cobra.Command{
		Use:     "ls <id>:<directory>",
		Aliases: []string{"list"},
		Short:   "List a directory",
		Long:    "List a directory of a sandbox; <id>: alone is the user's home. -q prints paths only.",
		Example: `  e2bctl fs ls "$ID":
  e2bctl fs ls "$ID":/srv --depth 3`,
		Args: cmdutil.Wants("one directory as <id>:<directory>", cobra.ExactArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error {
		found, err := sb.Files.List(ctx, paths[0], &sandbox.ListFilesParams{User: user, MaxDepth: int(depth)})
		if err != nil {
			return err
		}
		return writeFiles(f, found, depth > 1)
	})
	cmd.Flags().Var(&depth, "depth", "how many levels of directories")
	return cmd
}

// writeFiles writes a list of files. If levels is set, the files are from several levels of
// directories, and the list shows paths instead of names.
func writeFiles(f *cmdutil.Factory, found []sandbox.FileInfo, levels bool) error {
	now := time.Now()
	views, paths, rows := make([]fileView, len(found)), make([]string, len(found)), make([][]string, len(found))
	for i, file := range found {
		views[i], paths[i] = viewOf(&file), file.Path
		name := file.Name
		if levels {
			name = file.Path
		}
		if file.Type == sandbox.TypeSymlink {
			name += " -> " + file.SymlinkTarget
		}
		rows[i] = []string{
			file.Permissions, file.Owner, file.Group, strconv.FormatInt(file.Size, 10), cmdutil.Moment(file.ModTime, now, f.IO.OutIsTerminal), name,
		}
	}
	return f.WriteList(cmdutil.List{
		Kind: "files", Views: views, Names: paths, Header: []string{"MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"}, Rows: rows, LongNames: true,
		Spare: []string{"GROUP", "OWNER"},
	})
}

func newCmdStat(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "stat <id>:<path>",
		Short:   "Show one file or directory",
		Long:    "Show one file or directory of a sandbox; a symbolic link is shown itself.",
		Example: `  e2bctl fs stat "$ID":/etc/passwd`,
		Args:    cmdutil.Wants("one file as <id>:<path>", cobra.ExactArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error {
		file, err := sb.Files.Stat(ctx, paths[0], &sandbox.PathParams{User: user})
		if err != nil {
			return err
		}
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, viewOf(file))
		}
		rows := [][]string{
			{"Path", file.Path}, {"Type", string(file.Type)}, {"Mode", file.Permissions}, {"Owner", file.Owner}, {"Group", file.Group},
			{"Size", strconv.FormatInt(file.Size, 10)}, {"Modified", cmdutil.Moment(file.ModTime, time.Now(), f.IO.OutIsTerminal)},
		}
		if file.Type == sandbox.TypeSymlink {
			rows = append(rows, []string{"Leads to", file.SymlinkTarget})
		}
		return cmdutil.WriteTable(f.IO.Out, f.IO.OutWidth, []string{"FIELD", "VALUE"}, rows)
	})
}

func newCmdMakeDir(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "mkdir <id>:<directory>...",
		Short:   "Make directories",
		Long:    "Make directories in a sandbox, and the missing ones above them. One that exists is success.",
		Example: `  e2bctl fs mkdir "$ID":work/out`,
		Args:    cmdutil.Wants("directories as <id>:<directory>", cobra.MinimumNArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error {
		return f.EachNamed(paths, func(path string) error { return sb.Files.MakeDir(ctx, path, &sandbox.PathParams{User: user}) })
	})
}

func newCmdMove(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "mv <id>:<path> <id>:<path>",
		Aliases: []string{"rename"},
		Short:   "Rename or move a file or directory",
		Long:    "Rename or move a file or directory of a sandbox. A file that has the new name is replaced.",
		Example: `  e2bctl fs mv "$ID":draft.md "$ID":final.md`,
		Args:    cmdutil.Wants("the old and the new path, each as <id>:<path>", cobra.ExactArgs(2)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error {
		err := sb.Files.Rename(ctx, paths[0], paths[1], &sandbox.PathParams{User: user})
		return f.Report([]cmdutil.Outcome{{Name: paths[1], Err: err}})
	})
}

func newCmdRemove(f *cmdutil.Factory) *cobra.Command {
	var recursive bool
	cmd := command(f, &cobra.Command{
		Use:     "rm <id>:<path>...",
		Aliases: []string{"remove", "delete"},
		Short:   "Remove files and, with -r, directories",
		Long:    "Remove files of a sandbox and, with -r, directories with all that is in them.",
		Example: `  e2bctl fs rm "$ID":notes.txt
  e2bctl fs rm -r "$ID":build`,
		Args: cmdutil.Wants("files as <id>:<path>", cobra.MinimumNArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, paths []string, user string) error {
		params := &sandbox.PathParams{User: user}
		return f.EachNamed(paths, func(path string) error {
			file, err := sb.Files.Stat(ctx, path, params) // the service removes directories, too, and does not report missing files
			switch {
			case err != nil:
				return err
			case file.IsDir() && !recursive:
				return &fs.PathError{Op: "remove", Path: path, Err: errIsDir}
			}
			return sb.Files.Remove(ctx, path, params)
		})
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove directories, too")
	return cmd
}
