package local

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

type setupOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Quiet bool
}

func newCmdSetup(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "Prepare the Python of local sandboxes",
		Long: `Prepare the Python that local sandboxes run: IPython, numpy, pandas, matplotlib,
pillow and requests, in an environment of their own in your cache directory. The
first time takes a minute and needs a network; later it returns at once. If it
cannot be made, the reason is printed and the status is 1; sandboxes then run the
Python of this machine as it is. Environments of other versions of e2bctl are
removed after 30 days without use, and one that other users can write to is
replaced.`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return setupRun(cmd.Context(), &setupOptions{IO: f.IO, JSON: f.JSON(), Quiet: f.Quiet()})
		},
	}
}

// pythonView is a Python as -o json shows it.
type pythonView struct {
	Path    string            `json:"path"`
	Version string            `json:"version"`
	Level   local.PythonLevel `json:"level"`
	Note    string            `json:"note,omitempty"`
}

func setupRun(ctx context.Context, opts *setupOptions) error {
	progress := opts.IO.Err
	if opts.Quiet {
		progress = io.Discard
	}
	found, err := local.Setup(ctx, progress)
	if err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, pythonView(*found))
	}
	if found.Note != "" {
		fmt.Fprintln(opts.IO.Err, cmdutil.Printable(found.Note))
	}
	_, err = fmt.Fprintln(opts.IO.Out, found.Path)
	return err
}
