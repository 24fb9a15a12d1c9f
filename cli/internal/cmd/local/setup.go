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
	Engine   local.Engine        // the engine to prepare the machine for
	From     string              // what is prepared, or a directory with it; "" means that it is made or downloaded
	Packages []local.SetupOption // the packages to install; if empty, the packages that an earlier setup chose
}

func newCmdSetup(f *cmdutil.Factory) *cobra.Command {
	var (
		full   bool
		file   string
		engine = cmdutil.Engine(local.DefaultEngine)
		from   string
	)
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Prepare the Python of local sandboxes",
		Long: `Prepare the Python that local sandboxes run: IPython, numpy, pandas, matplotlib,
pillow and requests, and the kernel of Bash, in an environment of their own in your
cache directory. The first time takes a minute and needs a network; later it returns
at once. If it cannot be made, the reason is printed and the status is 1; sandboxes
then run the Python of this machine as it is. Environments of other versions of
e2bctl are removed after 30 days without use, and one that other users can write to
is replaced. Then a local cloud is tried, so that the first sandbox need not wait for
the search for files of this machine that sandboxes must not see.

With --full it has the packages of the service's template code-interpreter-v1, at its
versions, and kernels of JavaScript and TypeScript: 450 MB to download. With
--packages it holds the packages of a requirements file, too, which pip installs as
you. The choice stays until the next one; --full=false goes back to the short list.

Where E2BCTL_PYTHON names a python3, sandboxes run that one as it is.

With --engine wasm it prepares the machine for sandboxes of WebAssembly in its place: npm
fetches Deno and Pyodide, in fixed versions with known digests. With --from
they are taken from a directory, under the names that npm pack gives them.

With --engine docker, the default on macOS and Windows, it prepares the program that is the
first process of containers, if e2bctl cannot be that itself: on these systems, and where
the daemon runs on another processor. Releases for macOS and Windows carry it; otherwise
the Go of this machine compiles it, once for each version, or --from names the e2bctl
of the release for Linux on that processor.

With --engine gvisor your go command builds runsc, the program of gVisor, in a fixed
version, which takes some minutes. Another one is named with --runsc, where a local cloud
starts.`,
		Example: `  e2bctl local setup --full
  e2bctl local setup --packages requirements.txt
  e2bctl local setup --engine wasm
  e2bctl local setup --engine docker
  e2bctl local setup --engine gvisor`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := &setupOptions{IO: f.IO, JSON: f.JSON(), Quiet: f.Quiet(), Engine: local.Engine(engine), From: from}
			if err := checkSetup(cmd, opts.Engine); err != nil {
				return err
			}
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
	cmd.Flags().Var(&engine, "engine", "prepare what sandboxes of this `ENGINE` run: room, docker, wasm or gvisor")
	cmd.Flags().StringVar(&from, "from", "", "prepare it from `PATH`: with --engine wasm a directory\nwith the packages of npm, with docker an e2bctl")
	return cmd
}

// checkSetup refuses flags that have no meaning for the engine.
func checkSetup(cmd *cobra.Command, engine local.Engine) error {
	others := map[local.Engine][]string{
		local.EngineRoom:   {"from"},
		local.EngineDocker: {"full", "packages"},
		local.EngineWasm:   {"full", "packages"},
		local.EngineGVisor: {"full", "packages", "from"},
	}[engine]
	for _, name := range others {
		if cmd.Flags().Changed(name) {
			return cmdutil.Usagef(cmd, "--%s is not for the engine %s", name, engine)
		}
	}
	return nil
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
	switch opts.Engine {
	case local.EngineWasm:
		dir, err := local.SetupWasm(ctx, progress, &local.SetupWasmParams{From: opts.From})
		return opts.prepared(wasmView{dir}, dir, err)
	case local.EngineDocker:
		path, err := local.SetupDocker(ctx, progress, &local.SetupDockerParams{From: opts.From})
		return opts.prepared(dockerView{path}, path, err)
	case local.EngineGVisor:
		path, err := local.SetupGVisor(ctx, progress, nil)
		return opts.prepared(gvisorView{path}, path, err)
	}
	found, err := local.Setup(ctx, progress, opts.Packages...)
	if err != nil {
		return err
	}
	if err := tryCloud(ctx, progress); err != nil {
		fmt.Fprintf(opts.IO.Err, "e2bctl: local setup: the Python is prepared, but a local cloud does not start here: %s\n", cmdutil.Message(err))
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

// tryCloud starts a local cloud and ends it. When the cloud starts, its server that runs as root
// searches the machine for files that other users may not read, and stores the result for later
// starts.
func tryCloud(ctx context.Context, progress io.Writer) error {
	fmt.Fprintln(progress, "Trying a local cloud, so that the first one that is used starts at once")
	cloud, err := local.Start(ctx, local.WithWarm(0))
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "A local cloud starts here")
	return cloud.Close()
}

// wasmView is the program of wasm sandboxes, as -o json shows it.
type wasmView struct {
	Directory string `json:"directory"`
}

// dockerView is the program that is the first process of containers, as -o json shows it.
type dockerView struct {
	Program string `json:"program"`
}

// prepared prints the program that was prepared for an engine: view with -o json, and otherwise
// path.
func (o *setupOptions) prepared(view any, path string, err error) error {
	if err != nil {
		return err
	}
	if o.JSON {
		return cmdutil.WriteJSON(o.IO.Out, view)
	}
	_, err = fmt.Fprintln(o.IO.Out, path)
	return err
}

// gvisorView is the program of gvisor sandboxes, as -o json shows it.
type gvisorView struct {
	Path string `json:"path"`
}
