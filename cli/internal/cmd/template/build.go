package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

type buildOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Quiet bool
	Open  cmdutil.Opener
	Group func(title string) (end func()) // folds the lines of the log in a CI job until end is called

	Name, Dir  string
	Dockerfile string // the path of the Dockerfile; "": the one in Dir
	Check      string // the Dockerfile to check without a build; "" means to build
	Target     string
	Command    string
	Ready      string
	CPUs       cmdutil.Count
	Memory     cmdutil.Size
	MemoryMB   cmdutil.Count
	Engine     cmdutil.Engine
	Tags       []string
	Args       cmdutil.KeyValues
	NoCache    bool
	Detach     bool
	Progress   progressMode

	ignoreFile string // the path of the file with the patterns of ignored files; "": .dockerignore
}

func newCmdBuild(f *cmdutil.Factory) *cobra.Command {
	opts := &buildOptions{IO: f.IO, Group: f.Group, Progress: progressAuto}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "build <name>[:tag] [directory]",
		Aliases: []string{"create", "ct", "bd"},
		Short:   "Build a template from a Dockerfile, and print its ID",
		Long: `Build a template from a Dockerfile, and print its ID. The Dockerfile is e2b.Dockerfile or
Dockerfile of the directory, which is the current one by default, and it copies files of
that directory, without what .dockerignore names, or the file beside the Dockerfile
that is called as it is with .dockerignore behind. Steps that were built before are not
built again, and files that the service has are not sent again.

Of several stages only those are built that the last one, or that of --target, needs.
COPY --from works on the local cloud only. An instruction that a sandbox cannot follow
is an error that names an alternative.

When a sandbox runs a command, by CMD, ENTRYPOINT or --cmd, the build runs it, too, and
waits until --ready-cmd succeeds. Without --ready-cmd it waits 20 seconds: give a check
such as 'curl -fs localhost:8000', or 'true' where nothing is to be waited for.

The steps run on the service, or with --local in sandboxes of the local cloud, where the
images e2bdev/base and e2bdev/code-interpreter are its built-in templates, and others
come from their registries; if none is running, one is started in the background. The log goes to stderr. With --detach the command ends
when the build has begun, and e2bctl template logs -f follows it. Stopping the command
does not stop the build either.`,
		Example: `  e2bctl template build web:v1 --cmd 'python3 app.py' --ready-cmd 'curl -fs localhost:8000'
  e2bctl template build --local tools ./tools --build-arg VERSION=7
  e2bctl template build --check Dockerfile
  e2bctl create web:v1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if opts.Check != "" {
				return cmdutil.Wants("with --check one directory at most", cobra.MaximumNArgs(1))(cmd, args)
			}
			return cmdutil.Wants("a name, and one directory at most", cobra.RangeArgs(1, 2))(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.Check != "" {
				if err := opts.setDir(cmd, args); err != nil {
					return err
				}
				opts.Dockerfile = opts.Check
				return checkRun(cmd.Context(), opts)
			}
			opts.JSON, opts.Quiet, opts.Name = f.JSON(), f.Quiet(), args[0]
			if err := opts.setDir(cmd, args[1:]); err != nil {
				return err
			}
			if opts.Memory%(1<<20) != 0 {
				return cmdutil.Usagef(cmd, "--memory %s: want whole MiB", opts.Memory.String())
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalStarting, nil); err != nil {
				return err
			}
			return buildRun(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	cmdutil.AddLocalFlag(cmd, &isLocal)
	cmd.MarkFlagsMutuallyExclusive("dockerfile", "file", "check")
	cmd.MarkFlagsMutuallyExclusive("memory", "memory-mb")
	cmd.MarkFlagsMutuallyExclusive("cpu", "cpu-count")
	return cmd
}

// addFlags adds the flags of e2bctl template build, except --local.
func (opts *buildOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&opts.Dockerfile, "dockerfile", "d", "", "the Dockerfile is `FILE`, - for standard input")
	flags.StringVarP(&opts.Dockerfile, "file", "f", "", "the name of --dockerfile in docker: `FILE`")
	flags.StringVar(&opts.Check, "check", "", "list the parts of the Dockerfile `FILE` that a build would refuse or leave out,\nwith lines, and build nothing")
	flags.StringVar(&opts.Target, "target", "", "build the `STAGE` of the Dockerfile, by name or number (default the last)")
	flags.StringVarP(&opts.Command, "cmd", "c", "", "run `COMMAND` in every sandbox, in place of CMD and ENTRYPOINT")
	flags.StringVar(&opts.Ready, "ready-cmd", "", "a sandbox is ready when `COMMAND` succeeds\n(default a wait of 20 seconds where a command is run)")
	flags.Var(&opts.CPUs, "cpu", "processors of a sandbox (default what the service gives)")
	flags.Var(&opts.Memory, "memory", "memory of a sandbox, such as 512MiB (default what the service gives)")
	flags.StringArrayVarP(&opts.Tags, "tag", "t", nil, "give the build the `TAG`, too, repeatable")
	flags.Var(&opts.Engine, "engine", "what runs the template on a local cloud: room, docker, wasm or\ngvisor (default the engine of its base, or else the cloud's)")
	flags.Var(&opts.Args, "build-arg", "value of an ARG of the Dockerfile, repeatable")
	flags.BoolVar(&opts.NoCache, "no-cache", false, "build all steps anew")
	flags.BoolVar(&opts.Detach, "detach", false, "end when the build has begun")
	flags.Var(&opts.Progress, "progress", "how the log is shown: auto, plain with times,\njson with one object a line")
	opts.addOfficialFlags(cmd)
}

// addOfficialFlags adds second names for flags of the command: their names in E2B's official CLI.
func (o *buildOptions) addOfficialFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "cpus" { // the name in run and create
			name = "cpu"
		}
		return pflag.NormalizedName(name)
	})
	flags.StringVarP(&o.Dir, "path", "p", "", "the directory")
	flags.Var(&o.CPUs, "cpu-count", "the name of --cpu in the official CLI")
	flags.Var(&o.MemoryMB, "memory-mb", "the name of --memory in the official CLI, in MiB")
	for _, name := range []string{"path", "cpu-count", "memory-mb"} {
		flags.Lookup(name).Hidden = true
	}
}

func (o *buildOptions) setDir(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && o.Dir != "":
		return cmdutil.Usagef(cmd, "the directory is there twice: as an argument and as --path")
	case len(args) == 1:
		o.Dir = args[0]
	}
	if o.Dir == "" {
		o.Dir = "."
	}
	return nil
}

// definition reads the Dockerfile and returns the template that it defines.
func (o *buildOptions) definition(ctx context.Context) (template.Definition, error) {
	params := &template.DockerfileParams{Args: o.Args, Target: o.Target}
	if o.Dockerfile == "-" {
		in := o.IO.Reading(ctx)
		defer in.Close()
		return o.withFlags(template.FromDockerfile(in, params)), nil
	}
	file, err := o.openDockerfile()
	if err != nil {
		return template.Definition{}, err
	}
	defer file.Close()
	if _, err := os.Stat(file.Name() + ".dockerignore"); err == nil {
		o.ignoreFile = file.Name() + ".dockerignore"
	}
	return o.withFlags(template.FromDockerfile(file, params)), nil
}

func (o *buildOptions) openDockerfile() (*os.File, error) {
	if o.Dockerfile != "" {
		return os.Open(o.Dockerfile)
	}
	for _, name := range []string{"e2b.Dockerfile", "Dockerfile"} {
		file, err := os.Open(filepath.Join(o.Dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, fmt.Errorf("%s has neither e2b.Dockerfile nor Dockerfile: name one with --dockerfile, or begin with e2bctl template init: %w", o.Dir, fs.ErrNotExist)
}

// withFlags returns d with the settings of the flags. They override those of the Dockerfile.
func (o *buildOptions) withFlags(d template.Definition) template.Definition {
	if o.Command != "" {
		d = d.Start(o.Command, "")
	}
	if o.Ready != "" {
		d = d.Ready(template.ReadyCommand(o.Ready))
	}
	return d
}

// checkRun prints the parts of a Dockerfile that a build would ignore, one per line. If a build
// would be refused, the error is the reason.
func checkRun(ctx context.Context, opts *buildOptions) error {
	d, err := opts.definition(ctx)
	if err != nil {
		return err
	}
	notices, err := template.Check(ctx, d, &template.BuildParams{Dir: opts.Dir, IgnoreFile: opts.ignoreFile})
	for _, notice := range notices {
		fmt.Fprintln(opts.IO.Out, cmdutil.Words(notice))
	}
	return err
}

// builtView is a build as -o json shows it, with the field names of the API.
type builtView struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Name       string   `json:"name"`
	Names      []string `json:"names"`
	Tags       []string `json:"tags"`
}

func buildRun(ctx context.Context, opts *buildOptions) (err error) {
	d, err := opts.definition(ctx)
	if err != nil {
		return err
	}
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	shown := newProgress(opts.IO, opts.Progress, opts.Quiet)
	built, err := opts.build(ctx, conn, d, shown)
	if err != nil {
		shown.failed(err)
		if built != nil && ctx.Err() != nil {
			fmt.Fprintf(opts.IO.Err, "The build is not stopped: e2bctl template logs -f %s %s follows it.\n", cmdutil.Printable(built.TemplateID), cmdutil.Printable(built.BuildID))
		}
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, builtView{built.TemplateID, built.BuildID, built.Name, notNil(built.Names), notNil(built.Tags)})
	}
	if opts.Detach && !opts.Quiet {
		fmt.Fprintf(opts.IO.Err, "Building: e2bctl template logs -f %s %s follows it.\n", cmdutil.Printable(built.TemplateID), cmdutil.Printable(built.BuildID))
	}
	_, err = fmt.Fprintln(opts.IO.Out, cmdutil.Printable(built.TemplateID))
	return err
}

// build starts the build and, without --detach, waits for its end. If the build did not start,
// built is nil.
func (o *buildOptions) build(ctx context.Context, conn *cmdutil.Connection, d template.Definition, shown *progress) (built *template.Built, err error) {
	if !shown.silent && !shown.json {
		defer o.Group("template build " + o.Name)()
	}
	built, err = template.Start(ctx, conn.Templates, o.Name, d, &template.BuildParams{
		Tags: o.Tags, CPUs: int(o.CPUs), MemoryBytes: int64(o.MemoryMB)<<20 + int64(o.Memory),
		Engine: api.Engine(o.Engine), NoCache: o.NoCache, Dir: o.Dir, IgnoreFile: o.ignoreFile, Log: shown.show,
	})
	if err != nil {
		return built, err
	}
	if o.Detach {
		return built, nil
	}
	return built, template.Wait(ctx, conn.Templates, built, &template.WaitParams{Log: shown.show})
}

// notNil returns list, or an empty list if it is nil: a nil list would be null in JSON.
func notNil(list []string) []string { return append([]string{}, list...) }
