package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type pauseOptions struct {
	Find   *cmdutil.Services
	IDs    []string
	Mode   pauseMode
	Strict bool
}

// NewCmdPause returns e2bctl pause.
func NewCmdPause(f *cmdutil.Factory) *cobra.Command {
	opts := &pauseOptions{}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "pause <id>...",
		Short: "Pause sandboxes, to be resumed later",
		Long: `Pause sandboxes and print their IDs. A paused sandbox has no lifetime: it stays until
e2bctl resume continues it, or e2bctl kill ends it. e2bctl exec resumes it, too.
Connections into it end.

Its processes stop where they are and keep their memory, which stays in use. With
--mode filesystem only its files are kept, and resuming starts the sandbox anew from
them. So does the local cloud with every sandbox that was paused before it was
restarted, unless it runs in gVisor, whose memory it saves.

A sandbox that is paused already is an error (status 5).`,
		Example: `  e2bctl pause "$ID"
  e2bctl pause --mode filesystem "$ID"
  e2bctl ls -q -m job=42 | xargs e2bctl pause`,
		Args: cmdutil.Wants("the IDs of sandboxes", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.IDs = args
			if opts.Find, err = f.Services(cmd, isLocal); err != nil {
				return err
			}
			return pauseRun(cmd.Context(), f, opts)
		},
	}
	flags := cmd.Flags()
	flags.Var(&opts.Mode, "mode", "what is kept: full, or filesystem for the files alone (default full)")
	flags.BoolVar(&opts.Strict, "strict", false, "refuse to pause a sandbox whose daemon does not answer")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func pauseRun(ctx context.Context, f *cmdutil.Factory, opts *pauseOptions) (err error) {
	defer cmdutil.Closing(opts.Find, &err)
	targets := namedTargets(ctx, opts.Find, opts.IDs)
	forEach(targets, func(t *target) error {
		return t.conn.Pause(ctx, t.id, &sandbox.PauseParams{Mode: sandbox.PauseMode(opts.Mode), RequireHealthyGuest: opts.Strict})
	})
	return reportViews(ctx, f, targets)
}
