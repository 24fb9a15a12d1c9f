package sandbox

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

// stream is the path that means stdin or stdout.
const stream = "-"

type copyOptions struct {
	transfer.Copy
	Find      *cmdutil.Services
	User      string
	Quiet     bool
	connected map[string]*sandbox.Sandbox // the sandboxes that the command has connected to, by their IDs
}

// place is a path in a sandbox. If sandbox is nil, it is a path on this machine.
type place struct {
	sandbox *sandbox.Sandbox
	path    string
}

// NewCmdCopy returns e2bctl cp.
func NewCmdCopy(f *cmdutil.Factory) *cobra.Command {
	opts := &copyOptions{Copy: transfer.Copy{IO: f.IO, MaxBytes: sandbox.DefaultMaxBytes, MaxFiles: sandbox.DefaultMaxFiles}}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "cp <source>... <destination>",
		Short: "Copy files into a sandbox, out of one, or between two",
		Long: `Copy files, or with -r directories, into a sandbox, out of one, or between two. A path
in a sandbox is <id>:<path>, relative to the user's home. A destination that ends in /,
or that is a directory, gets the sources into it; <directory>/. is the content of a
directory alone. Files that exist are replaced, others stay.

- is stdin or stdout, as a tar stream: a directory or file of a sandbox is packed into it,
or it is unpacked into a directory of a sandbox.

-r keeps modes, times and symbolic links; links that lead out of the directory are not
copied to this machine, and are named on stderr. A copy to this machine that is cut off
leaves no half file. A sandbox that is paused is resumed. A sandbox of the local cloud is
found without --local.`,
		Example: `  e2bctl cp data.csv "$ID":input/
  e2bctl cp -r "$ID":results .
  e2bctl cp -r "$ID":project/. "$OTHER":project
  e2bctl cp "$ID":project - | tar -tv
  git archive HEAD | e2bctl cp - "$ID":app`,
		Args: cmdutil.Wants("a source and a destination", cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Command, opts.Quiet = cmd, f.Quiet()
			if opts.Find, err = f.Services(cmd, isLocal); err != nil {
				return err
			}
			return copyRun(cmd.Context(), opts, args[:len(args)-1], args[len(args)-1])
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&opts.Recursive, "recursive", "r", false, "copy directories, too")
	flags.StringVarP(&opts.User, "user", "u", "", "read and write in the sandbox as user `NAME` (default: user)")
	flags.Var(&opts.MaxBytes, "max-download", "most bytes of a directory that is copied to this machine;\nwhat came until then stays")
	flags.Var(&opts.MaxFiles, "max-files", "most files, directories and links of one")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func copyRun(ctx context.Context, opts *copyOptions, sources []string, destination string) (err error) {
	defer cmdutil.Closing(opts.Find, &err)
	opts.connected = map[string]*sandbox.Sandbox{}
	defer func() {
		for _, sb := range opts.connected {
			err = cmdutil.WithClose(err, sb) // connected to, not created here: it keeps running
		}
	}()
	if err := opts.check(sources, destination); err != nil {
		return err
	}
	to, err := opts.place(ctx, destination)
	if err != nil {
		return err
	}
	if len(sources) > 1 {
		to.path += "/"
	}
	for _, source := range sources {
		from, err := opts.place(ctx, source)
		if err == nil {
			err = opts.copy(ctx, from, to)
		}
		if err != nil && len(sources) > 1 {
			err = fmt.Errorf("%s: %w", source, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// place returns the place that an argument names. If the place is in a sandbox, it connects to that
// sandbox.
func (o *copyOptions) place(ctx context.Context, text string) (place, error) {
	id, path, ok := cmdutil.SandboxPath(text)
	if !ok {
		return place{path: text}, nil
	}
	if sb := o.connected[id]; sb != nil {
		return place{sb, path}, nil
	}
	conn, err := o.Find.Of(ctx, id)
	if err != nil {
		return place{}, err
	}
	sb, err := conn.Connect(ctx, id, sandbox.WithExpiry(sandbox.Expiry{Renew: true})) // also keeps alive one that is paused when its lifetime is over
	if err != nil {
		return place{}, err
	}
	o.connected[id] = sb
	return place{sb, path}, nil
}

// check refuses sources and destinations that cannot be combined, before any connection is made.
func (o *copyOptions) check(sources []string, destination string) error {
	_, _, inSandbox := cmdutil.SandboxPath(destination)
	for _, source := range sources {
		if _, _, ok := cmdutil.SandboxPath(source); ok {
			inSandbox = true
		}
		switch {
		case source != stream:
		case len(sources) > 1:
			return cmdutil.Usagef(o.Command, "- is a whole tar stream, and cannot be one of several sources")
		case o.IO.InIsTerminal:
			return cmdutil.Usagef(o.Command, "- reads a tar stream from stdin, which is a terminal")
		}
	}
	switch {
	case !inSandbox:
		return cmdutil.Usagef(o.Command, "one of them must be in a sandbox: <id>:<path>")
	case destination == stream && len(sources) > 1:
		return cmdutil.Usagef(o.Command, "- is a whole tar stream, and cannot be the destination of several sources")
	case destination == stream && o.IO.OutIsTerminal:
		return cmdutil.Usagef(o.Command, "- writes a tar stream to stdout, which is a terminal")
	}
	return nil
}

// copy copies one source to its destination.
func (o *copyOptions) copy(ctx context.Context, from, to place) error {
	meter := transfer.NewMeter(o.IO, o.Quiet)
	defer meter.End()
	params := &sandbox.TarParams{User: o.User, Progress: meter.Show}
	switch {
	case to.sandbox == nil && to.path == stream:
		return from.sandbox.Files.ReadTar(ctx, from.path, o.IO.Out, params)
	case from.sandbox == nil && from.path == stream:
		in := o.IO.Reading(ctx)
		defer in.Close()
		return to.sandbox.Files.WriteTar(ctx, to.path, in, params)
	}
	one := o.Copy
	one.Progress = meter.Show
	return one.Run(ctx, o.end(from), o.end(to))
}

func (o *copyOptions) end(p place) transfer.End {
	if p.sandbox == nil {
		return transfer.End{Path: p.path}
	}
	return transfer.InSandbox(p.sandbox, o.User, p.path)
}
