// Package sandbox contains the commands that create, use and kill sandboxes.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// defaultLifetime is the lifetime of a sandbox that keeps running after the command. Such a sandbox
// has no lease, because a command that has ended cannot renew one.
const defaultLifetime = 5 * time.Minute

type createOptions struct {
	IO       *cmdutil.IOStreams
	Progress io.Writer
	JSON     bool
	Open     cmdutil.Opener
	Sandbox  createFlags
}

// NewCmdCreate returns e2bctl create.
func NewCmdCreate(f *cmdutil.Factory) *cobra.Command {
	opts := &createOptions{IO: f.IO}
	opts.Sandbox.Lifetime = cmdutil.Duration(defaultLifetime)
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "create [template]",
		Short: "Create a sandbox and leave it running",
		Long: `Create a sandbox, print its ID and leave it running until its lifetime is over or
it is killed. With --on-timeout pause it is paused when its lifetime is over, and
e2bctl resume continues it. With --local it runs on this machine, in the cloud of
e2bctl local up; if none is running, one is started in the background, and ends
ten minutes after its last sandbox. --memory, --cpus, --disk and --pids are limits
of the local cloud that this command starts; on a service the template decides.`,
		Example: `  ID=$(e2bctl create)
  e2bctl create code-interpreter-v1 --lifetime 1h -m job=42 -e TZ=UTC
  e2bctl create --lifetime 10m --on-timeout pause --auto-resume
  ID=$(e2bctl create --local)`,
		Args: cmdutil.Wants("one template at most", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Progress = f.JSON(), f.Progress()
			if len(args) == 1 && cmd.Flags().Changed("template") {
				return cmdutil.Usagef(cmd, "the template is named twice: %q and --template %s", args[0], opts.Sandbox.Template)
			}
			if len(args) == 1 {
				opts.Sandbox.Template = args[0]
			}
			if err := opts.Sandbox.checkTimeoutFlags(cmd); err != nil {
				return err
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalStarting, &opts.Sandbox.Resources); err != nil {
				return err
			}
			return createRun(cmd.Context(), opts)
		},
	}
	opts.Sandbox.Add(cmd, "how long the sandbox lives")
	flags := cmd.Flags()
	flags.Var(&opts.Sandbox.Lifetime, "timeout", "the name of --lifetime in the official CLI")
	flags.VarP(&opts.Sandbox.Envs, "env", "e", "environment variable for every process in the sandbox, repeatable")
	opts.Sandbox.addTimeoutFlags(cmd)
	flags.BoolP("detach", "d", false, "of the official CLI, which otherwise opens a terminal; this command never does")
	flags.Lookup("detach").Hidden = true
	cmdutil.AddLocalFlag(cmd, &isLocal)
	cmd.MarkFlagsMutuallyExclusive("lifetime", "timeout")
	return cmd
}

func createRun(ctx context.Context, opts *createOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := opts.Sandbox.create(ctx, conn)
	if err != nil {
		return err
	}
	if err := opts.Sandbox.Install(ctx, sb, opts.Progress); err != nil {
		return cmdutil.WithClose(err, sb)
	}
	if opts.JSON {
		info, err := sb.Info(ctx)
		if err == nil {
			err = cmdutil.WriteJSON(opts.IO.Out, viewOf(info))
		}
		if err != nil {
			// The user does not know its ID yet, so it would run unnoticed.
			return cmdutil.WithClose(err, sb)
		}
		return sb.Detach()
	}
	if _, err := fmt.Fprintln(opts.IO.Out, sb.ID()); err != nil {
		return cmdutil.WithClose(err, sb)
	}
	return sb.Detach()
}
