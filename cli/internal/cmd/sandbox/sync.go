package sandbox

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/mirror"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

type syncOptions struct {
	mirror.Mirror
	IO       *cmdutil.IOStreams
	JSON     bool
	Quiet    bool
	Notes    io.Writer // receives notes about the progress
	Open     cmdutil.Opener
	ID       string
	Watch    bool
	MaxBytes cmdutil.Size
	MaxFiles cmdutil.Count
}

// NewCmdSync returns e2bctl sync.
func NewCmdSync(f *cmdutil.Factory) *cobra.Command {
	opts := &syncOptions{IO: f.IO, MaxBytes: sandbox.DefaultMaxBytes, MaxFiles: sandbox.DefaultMaxFiles}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "sync <directory> <id>:<directory>",
		SuggestFor: []string{"rsync", "mirror"},
		Short:      "Make a directory of a sandbox equal to one here, or the other way round",
		Long: `Make a directory of a sandbox equal to one of this machine, or with --pull the other way
round. Only files whose size, time or permissions differ are sent, with these and with
symbolic links. Each change is printed as create, update or remove, and the path; with
-o json they are a list.

What .gitignore files ignore, and .git, is neither sent nor removed; --exclude adds
patterns of the same form, and exceptions that begin with !. With --pull, the .gitignore
files on both sides count, and links that lead out of the directory are skipped and named
on stderr. Without --delete, nothing is removed, and no directory is replaced by a file. A
transfer that is cut off on its way changes no file. A sandbox that is paused is resumed.

--watch goes on and sends what changes, until it is interrupted, or until the sandbox or
the directory in it is gone; with -o json each change is an object on a line.`,
		Example: `  e2bctl sync . "$ID":app
  e2bctl sync --watch --delete . "$ID":app
  e2bctl sync --delete --exclude '*.log' --dry-run . "$ID":app
  e2bctl sync --pull "$ID":app/out out`,
		Args: cmdutil.Wants("a directory of this machine and one as <id>:<directory>", cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.Notes = f.JSON(), f.Quiet(), f.Progress()
			if err := opts.paths(cmd, args); err != nil {
				return err
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return syncRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Pull, "pull", false, "make the directory here equal to that of the sandbox")
	flags.BoolVar(&opts.Watch, "watch", false, "go on, and send what changes")
	flags.BoolVar(&opts.Delete, "delete", false, "remove what the source does not have and nothing ignores")
	flags.StringArrayVar(&opts.Exclude, "exclude", nil, "leave out what matches `PATTERN`, as in a .gitignore; repeatable")
	flags.BoolVarP(&opts.DryRun, "dry-run", "n", false, "print the changes, and make none")
	flags.StringVarP(&opts.User, "user", "u", "", "read and write in the sandbox as user `NAME` (default: user)")
	flags.Var(&opts.MaxBytes, "max-download", "most bytes that --pull brings at once")
	flags.Var(&opts.MaxFiles, "max-files", "most files, directories and links that --pull compares")
	cmd.MarkFlagsMutuallyExclusive("watch", "dry-run")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// paths reads the two arguments. With --pull the sandbox may be the first argument, because it is
// the source.
func (o *syncOptions) paths(cmd *cobra.Command, args []string) error {
	here, there := args[0], args[1]
	if _, _, ok := cmdutil.SandboxPath(here); ok && o.Pull {
		here, there = there, here
	}
	if _, _, ok := cmdutil.SandboxPath(here); ok {
		return cmdutil.Usagef(cmd, "%s is in a sandbox: name a directory of this machine first, or give --pull", here)
	}
	id, path, ok := cmdutil.SandboxPath(there)
	if !ok {
		return cmdutil.Usagef(cmd, "%s: want <id>:<directory>", there)
	}
	o.Local, o.ID, o.Dir = here, id, path
	return nil
}

func syncRun(ctx context.Context, opts *syncOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := conn.Connect(ctx, opts.ID, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err) // connected to, not created here: it keeps running
	meter := transfer.NewMeter(opts.IO, opts.Quiet)
	defer meter.End()
	m := &opts.Mirror
	m.Sandbox, m.Dir, m.Progress = sb, transfer.InSandbox(sb, opts.User, opts.Dir).Path, meter.Show
	m.MaxBytes, m.MaxFiles = int64(opts.MaxBytes), int64(opts.MaxFiles)
	m.Skipped = func(name, why string) {
		fmt.Fprintf(opts.IO.Err, "skipped %s: %s\n", cmdutil.Printable(name), cmdutil.Printable(why))
	}
	if opts.Watch {
		fmt.Fprintf(opts.Notes, "watching %s\n", cmdutil.Printable(opts.source()))
		return m.Watch(ctx, func(changes []mirror.Change) error {
			meter.End()
			return opts.print(changes)
		})
	}
	changes, err := m.Once(ctx)
	if err != nil {
		return err
	}
	meter.End()
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, append([]mirror.Change{}, changes...))
	}
	return opts.print(changes)
}

func (o *syncOptions) source() string {
	if o.Pull {
		return o.ID + ":" + o.Dir
	}
	return o.Local
}

// print prints each change on a line of its own. A name cannot break the line: its line breaks
// become spaces, and its control characters are left out.
func (o *syncOptions) print(changes []mirror.Change) error {
	for _, c := range changes {
		if o.JSON {
			if err := cmdutil.WriteJSONLine(o.IO.Out, c); err != nil {
				return err
			}
			continue
		}
		line := fmt.Sprintf("%-6s  %s", c.Type, c.Name)
		if o.Quiet {
			line = c.Name
		}
		if _, err := fmt.Fprintln(o.IO.Out, strings.ReplaceAll(cmdutil.Printable(line), "\n", " ")); err != nil {
			return err
		}
	}
	return nil
}
