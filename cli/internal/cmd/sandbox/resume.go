package sandbox

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type resumeOptions struct {
	Find     *cmdutil.Services
	IDs      []string
	Lifetime cmdutil.Duration
	Reboot   bool
}

// NewCmdResume returns e2bctl resume.
func NewCmdResume(f *cmdutil.Factory) *cobra.Command {
	opts := &resumeOptions{Lifetime: cmdutil.Duration(defaultLifetime)}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "resume <id>...",
		SuggestFor: []string{"start", "unpause", "wake"},
		Short:      "Resume paused sandboxes",
		Long: `Continue paused sandboxes and print their IDs. Processes go on where they were, if
their memory was kept; e2bctl info shows that. Otherwise the sandbox starts anew from
its files. A sandbox that runs already is no error: it then lives at least that long
from now.`,
		Example: `  e2bctl resume "$ID"
  e2bctl resume --lifetime 1h "$ID"
  e2bctl ls -q --state paused | xargs e2bctl resume`,
		Args: cmdutil.Wants("the IDs of sandboxes", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.IDs = args
			if opts.Find, err = f.Services(cmd, isLocal); err != nil {
				return err
			}
			return resumeRun(cmd.Context(), f, opts)
		},
	}
	flags := cmd.Flags()
	flags.Var(&opts.Lifetime, "lifetime", "how long the sandbox lives from now, at least")
	flags.Var(&opts.Lifetime, "timeout", "another name of --lifetime, as of create")
	flags.BoolVar(&opts.Reboot, "reboot", false, "start anew from the files, even if the memory was kept")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	cmd.MarkFlagsMutuallyExclusive("lifetime", "timeout")
	return cmd
}

func resumeRun(ctx context.Context, f *cmdutil.Factory, opts *resumeOptions) (err error) {
	defer cmdutil.Closing(opts.Find, &err)
	options := []sandbox.ConnectOption{sandbox.WithExpiry(sandbox.Expiry{After: time.Duration(opts.Lifetime)})}
	if opts.Reboot {
		options = append(options, sandbox.WithReboot())
	}
	targets := namedTargets(ctx, opts.Find, opts.IDs)
	forEach(targets, func(t *target) error {
		sb, err := t.conn.Connect(ctx, t.id, options...)
		if err != nil {
			return err
		}
		return sb.Detach()
	})
	return reportViews(ctx, f, targets)
}
