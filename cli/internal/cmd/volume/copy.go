package volume

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

func newCmdCopy(f *cmdutil.Factory) *cobra.Command {
	opts := &transfer.Copy{IO: f.IO, MaxBytes: sandbox.DefaultMaxBytes, MaxFiles: sandbox.DefaultMaxFiles}
	cmd := command(f, &cobra.Command{
		Use:   "cp <source> <destination>",
		Short: "Copy files to a volume, or from one",
		Long: `Copy a file, or with -r a directory, to a volume, from one, or between two. What is in
a volume is <volume>:<path>, and - is stdin or stdout. A destination that ends in /, or
that is a directory, gets the source into it; <directory>/. is the content of a directory
alone. Files that exist are replaced, others stay. A copy that breaks leaves no half file
on this machine.

-r keeps modes. Symbolic links are copied out of volumes where they lead nowhere else,
and not into volumes, because the API of volumes makes none: what is left out is said on
stderr.`,
		Example: `  e2bctl volume cp --local numbers.csv data:/input/
  e2bctl volume cp --local data:/results/report.html .
  e2bctl volume cp --local -r src data:/
  tar c src | e2bctl volume cp --local - data:/src.tar`,
		Args: cmdutil.Wants("a source and a destination", cobra.ExactArgs(2)),
	}, func(ctx context.Context, volumes *sandbox.Volumes, args []string) error {
		from, err := end(ctx, volumes, args[0])
		if err != nil {
			return err
		}
		to, err := end(ctx, volumes, args[1])
		if err != nil {
			return err
		}
		if from.Store == nil && to.Store == nil {
			return cmdutil.Usagef(opts.Command, "one of the two must be in a volume: <volume>:<path>")
		}
		return opts.Run(ctx, from, to)
	})
	opts.Command = cmd
	flags := cmd.Flags()
	flags.BoolVarP(&opts.Recursive, "recursive", "r", false, "copy directories, too")
	flags.Var(&opts.MaxBytes, "max-download", "most bytes of a directory that is copied out of a volume;\nwhat came until then stays")
	flags.Var(&opts.MaxFiles, "max-files", "most files, directories and links of one")
	return cmd
}

// end returns the source or destination of a copy that an argument names.
func end(ctx context.Context, volumes *sandbox.Volumes, text string) (transfer.End, error) {
	name, path, ok := cutPath(text)
	if !ok {
		return transfer.End{Path: text}, nil
	}
	v, err := volumes.Open(ctx, name)
	if err != nil {
		return transfer.End{}, err
	}
	return transfer.InVolume(v, path), nil
}
