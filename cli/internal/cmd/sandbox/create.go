// Package sandbox has the commands that create, use and kill sandboxes.
package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// defaultLifetime is how long a sandbox lives that is left running. A command
// that has ended cannot renew a lease.
const defaultLifetime = 5 * time.Minute

type createOptions struct {
	IO      *cmdutil.IOStreams
	JSON    bool
	Open    cmdutil.Opener
	Sandbox createFlags
}

// NewCmdCreate returns e2bctl create.
func NewCmdCreate(f *cmdutil.Factory) *cobra.Command {
	opts := &createOptions{IO: f.IO, Sandbox: createFlags{Lifetime: cmdutil.Duration(defaultLifetime)}}
	var isLocal bool
	var resources cmdutil.ResourceFlags
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
			opts.JSON = f.JSON()
			if len(args) == 1 {
				opts.Sandbox.Template = args[0]
			}
			if err := opts.Sandbox.checkTimeoutFlags(cmd); err != nil {
				return err
			}
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalStarting, &resources); err != nil {
				return err
			}
			return createRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.Var(&opts.Sandbox.Lifetime, "lifetime", "how long the sandbox lives")
	flags.Var(&opts.Sandbox.Lifetime, "timeout", "the name of --lifetime in the official CLI")
	flags.VarP(&opts.Sandbox.Envs, "env", "e", "environment variable for every process in the sandbox, repeatable")
	flags.VarP(&opts.Sandbox.Metadata, "metadata", "m", "metadata of the sandbox, repeatable")
	flags.Var(&opts.Sandbox.Volumes, "volume", "show a volume as a directory of the sandbox, repeatable")
	flags.Var(&opts.Sandbox.Mounts, "mount", "show a directory of this machine, which the local cloud must\nallow (local up --allow-mount), repeatable")
	opts.Sandbox.addTimeoutFlags(cmd)
	opts.Sandbox.Network.Add(cmd)
	resources.Add(cmd)
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
	sb, err := conn.Create(ctx, opts.Sandbox.options()...)
	if err != nil {
		return err
	}
	if opts.JSON {
		info, err := sb.Info(ctx)
		if err == nil {
			err = cmdutil.WriteJSON(opts.IO.Out, viewOf(info))
		}
		if err != nil {
			// Nobody knows its ID yet: it would run unnoticed.
			return cmdutil.WithClose(err, sb)
		}
		return sb.Detach()
	}
	if _, err := fmt.Fprintln(opts.IO.Out, sb.ID()); err != nil {
		return cmdutil.WithClose(err, sb)
	}
	return sb.Detach()
}
