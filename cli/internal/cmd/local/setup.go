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
	IO       *cmdutil.IOStreams
	JSON     bool
	Quiet    bool
	Packages []local.SetupOption // none: those that were chosen before
}

func newCmdSetup(f *cmdutil.Factory) *cobra.Command {
	var (
		full bool
		file string
	)
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Prepare the Python of local sandboxes",
		Long: `Prepare the Python that local sandboxes run: IPython, numpy, pandas, matplotlib,
pillow and requests, in an environment of their own in your cache directory. The
first time takes a minute and needs a network; later it returns at once. If it
cannot be made, the reason is printed and the status is 1; sandboxes then run the
Python of this machine as it is. Environments of other versions of e2bctl are
removed after 30 days without use, and one that other users can write to is
replaced.

With --full it holds what the service's template code-interpreter-v1 does, at its
versions, and kernels of Bash, JavaScript and TypeScript: 450 MB to download. With
--packages it holds the packages of a requirements file, too, which pip installs as
you. The choice stays until the next one; --full=false goes back to the short list.

Where E2BCTL_PYTHON names a python3, sandboxes run that one as it is.`,
		Example: `  e2bctl local setup --full
  e2bctl local setup --packages requirements.txt`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := &setupOptions{IO: f.IO, JSON: f.JSON(), Quiet: f.Quiet()}
			if cmd.Flags().Changed("full") {
				opts.Packages = append(opts.Packages, local.WithFullPackages(full))
			}
			if file != "" {
				opts.Packages = append(opts.Packages, local.WithPackageFile(file))
			}
			return setupRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "prepare everything that the service's template has, and more kernels")
	cmd.Flags().StringVar(&file, "packages", "", "install the packages of this requirements `FILE`, too")
	return cmd
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
	found, err := local.Setup(ctx, progress, opts.Packages...)
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
