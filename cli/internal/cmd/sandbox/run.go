package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type runOptions struct {
	IO        *cmdutil.IOStreams
	JSON      bool
	Quiet     bool
	Open      cmdutil.Opener
	Words     []string
	Template  string
	Process   processFlags
	Metadata  cmdutil.KeyValues
	Network   networkFlags
	Uploads   uploads
	Downloads downloads
	MaxBytes  cmdutil.Size // for each of Downloads
	MaxFiles  int64
	Lifetime  cmdutil.Duration
	Deadline  cmdutil.Duration
	Remove    bool
}

// NewCmdRun returns e2bctl run.
func NewCmdRun(f *cmdutil.Factory) *cobra.Command {
	opts := &runOptions{IO: f.IO, MaxBytes: sandbox.DefaultMaxBytes}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "run [flags] [--] <command>...",
		Short: "Run a command in a sandbox of its own",
		Long: `Create a sandbox, upload, run a command and show its output as it comes, download,
kill the sandbox, and return the command's status. Downloads are made even if the
command failed. The sandbox is killed however e2bctl ends, signals included; if
e2bctl itself is killed, the sandbox ends within five minutes.

A directory's content is copied; a file keeps its name if the target ends with a
slash. Paths in the sandbox are relative to the user's home. With --local the
sandbox runs on this machine, in a cloud that ends with this command.

Redirect the output of what the command leaves running, as in the last example: a
remote service waits for that output to end.`,
		Example: `  e2bctl run --local -- python3 -c 'print(6 * 7)'
  e2bctl run --upload .:app -w app --deadline 10m --download app/report.xml:out/ -- make test
  e2bctl run --rm=false --lifetime 1h -m job=42 'nohup python3 -m http.server >server.log 2>&1 &'`,
		Args: cmdutil.Wants("a command to run", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			if opts.Words, err = commandWords(cmd, args); err != nil {
				return err
			}
			if opts.MaxFiles <= 0 {
				return cmdutil.Usagef(cmd, "want a positive number for --max-files")
			}
			if isLocal && !opts.Remove {
				return cmdutil.Usagef(cmd, "--rm=false needs a cloud that outlives this command: use e2bctl create --local and e2bctl exec --local")
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalEphemeral); err != nil {
				return err
			}
			return cmdutil.OwnFailure(runRun(cmd.Context(), opts))
		},
	}
	opts.Process.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&opts.Template, "template", "t", "", "create the sandbox from template `NAME`")
	flags.VarP(&opts.Metadata, "metadata", "m", "metadata of the sandbox, repeatable")
	opts.Network.add(cmd)
	flags.Var(&opts.Uploads, "upload", "copy into the sandbox before the command, repeatable")
	flags.Var(&opts.Downloads, "download", "copy out of the sandbox after the command, repeatable")
	flags.Var(&opts.MaxBytes, "max-download", "most bytes of one --download; what came until then stays")
	flags.Int64Var(&opts.MaxFiles, "max-files", sandbox.DefaultMaxFiles, "most files, directories and links of one --download")
	flags.Var(&opts.Lifetime, "lifetime", "how long the sandbox may live (default: as long as this command)")
	flags.Var(&opts.Deadline, "deadline", "give up after this time, creation and copies included (status 124)")
	flags.BoolVar(&opts.Remove, "rm", true, "kill the sandbox at the end")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func runRun(ctx context.Context, opts *runOptions) (err error) {
	line, err := shellLine(opts.Words)
	if err != nil {
		return err
	}
	for _, t := range opts.Uploads { // before a sandbox is created
		if _, err := os.Stat(t.source); err != nil {
			return fmt.Errorf("uploading %s: %w", t.source, err)
		}
	}
	ctx, cancel := cmdutil.WithLimit(ctx, time.Duration(opts.Deadline))
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)

	create := createFlags{Template: opts.Template, Lifetime: time.Duration(opts.Lifetime), Metadata: opts.Metadata, Network: opts.Network}
	if !opts.Remove && create.Lifetime == 0 {
		create.Lifetime = defaultLifetime
	}
	sb, err := conn.Create(ctx, create.options()...)
	if err != nil {
		return err
	}
	if opts.Remove {
		defer cmdutil.Closing(sb, &err)
	} else {
		defer func() { err = cmdutil.KeepStatus(err, sb.Detach()) }()
	}
	if !opts.Quiet {
		fmt.Fprintf(opts.IO.Err, "sandbox %s\n", cmdutil.Printable(sb.ID()))
	}
	copier := copier{
		sandbox: sb, user: opts.Process.User, warn: opts.IO.Err,
		maxBytes: int64(opts.MaxBytes), maxFiles: opts.MaxFiles,
	}
	for _, t := range opts.Uploads {
		if err := copier.upload(ctx, t); err != nil {
			return fmt.Errorf("uploading %s: %w", t.source, err)
		}
	}
	err = runCommand(ctx, opts.IO, "run", opts.JSON, sb, line, opts.Process)
	if status, ok := errors.AsType[cmdutil.RemoteStatus](err); err != nil && !ok {
		return err
	} else if ok {
		err = status
	}
	for _, t := range opts.Downloads {
		if failure := copier.download(ctx, t); failure != nil {
			err = cmdutil.KeepStatus(err, fmt.Errorf("downloading %s: %w", t.source, failure))
			if _, ok := errors.AsType[cmdutil.RemoteStatus](err); ok {
				fmt.Fprintf(opts.IO.Err, "e2bctl: run: downloading %s: %s\n", cmdutil.Printable(t.source), cmdutil.Printable(failure.Error()))
			}
		}
	}
	return err
}
