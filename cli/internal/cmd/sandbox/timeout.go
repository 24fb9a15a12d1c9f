package sandbox

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

type timeoutOptions struct {
	IO       *cmdutil.IOStreams
	JSON     bool
	Open     cmdutil.Opener
	ID       string
	Lifetime cmdutil.Duration
	Extend   bool
}

// NewCmdTimeout returns e2bctl timeout.
func NewCmdTimeout(f *cmdutil.Factory) *cobra.Command {
	opts := &timeoutOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "timeout <id> <duration>",
		SuggestFor: []string{"lifetime", "extend", "set-timeout"},
		Short:      "Change how long a sandbox lives",
		Long: `Let a running sandbox live that long from now, which may be shorter than before, and
print its ID. With --extend it lives that much longer than it would have. What happens at
the end was decided when it was created. While e2bctl exec, cp, port-forward or code run
use the sandbox, they renew its lifetime.`,
		Example: `  e2bctl timeout "$ID" 1h
  e2bctl timeout --extend "$ID" 30m`,
		Args: cmdutil.Wants("the ID of a sandbox and a duration", cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if err := opts.Lifetime.Set(args[1]); err != nil {
				return cmdutil.Usagef(cmd, "%s: %w", args[1], err)
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return timeoutRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().BoolVar(&opts.Extend, "extend", false, "add the duration to the remaining time")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func timeoutRun(ctx context.Context, opts *timeoutOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	lifetime := time.Duration(opts.Lifetime)
	if opts.Extend {
		info, err := conn.Info(ctx, opts.ID)
		if err != nil {
			return err
		}
		lifetime += max(0, time.Until(info.EndAt))
	}
	if err := conn.SetLifetime(ctx, opts.ID, lifetime); err != nil {
		return err
	}
	return writeChanged(ctx, conn, opts.IO, opts.ID, opts.JSON)
}
