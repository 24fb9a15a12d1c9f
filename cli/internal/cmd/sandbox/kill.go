package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type killOptions struct {
	IO            *cmdutil.IOStreams
	Quiet         bool
	Report        func([]cmdutil.Outcome) error
	Open          cmdutil.Opener    // opens the service whose sandboxes --all kills
	Find          *cmdutil.Services // finds the services that have the sandboxes with the given IDs
	IDs           []string
	All           bool
	Metadata      cmdutil.KeyValues
	CI            ciScope
	States        states
	OlderThan     cmdutil.Duration
	DryRun        bool
	IgnoreMissing bool
	Yes           bool
}

// NewCmdKill returns e2bctl kill.
func NewCmdKill(f *cmdutil.Factory) *cobra.Command {
	opts := &killOptions{IO: f.IO, Report: f.Report}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "kill [<id>...]",
		Aliases: []string{"rm"}, SuggestFor: []string{"stop", "delete", "destroy", "terminate", "down"},
		Short: "Kill sandboxes",
		Long: `Kill sandboxes by ID, running or paused, or with --all every sandbox of your key;
-m, -s, --ci and --older-than select some of these. The IDs of killed sandboxes are
printed. --all lists them and asks first; without a terminal it needs --yes. With
--dry-run the IDs are printed, and nothing is killed.

--ci selects what the CI job that it runs in has created, and --ci=run what all jobs of
the run have, by the metadata that e2bctl help ci describes. Outside of CI it is an
error.`,
		Example: `  e2bctl kill "$ID"
  e2bctl kill --all -m job=42 --yes
  e2bctl kill --all --older-than 2h --dry-run
  e2bctl kill --all --ci --yes
  e2bctl kill --ignore-missing "$ID"`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Quiet, opts.IDs = f.Quiet(), args
			switch {
			case opts.All == (len(args) > 0):
				return cmdutil.Usagef(cmd, "want the IDs of sandboxes, or --all")
			case opts.All && !opts.Yes && !opts.DryRun && !f.IO.InIsTerminal:
				return cmdutil.Usagef(cmd, "--all asks first, but there is no terminal: add --yes")
			}
			for _, name := range []string{"metadata", "state", "ci", "older-than", "dry-run"} {
				if !opts.All && cmd.Flags().Changed(name) {
					return cmdutil.Usagef(cmd, "--%s needs --all", name)
				}
			}
			if err := opts.addCI(cmd); err != nil {
				return err
			}
			if opts.All {
				if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning, nil); err != nil {
					return err
				}
				return killListed(cmd.Context(), opts)
			}
			if opts.Find, err = f.Services(cmd, isLocal); err != nil {
				return err
			}
			return killNamed(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&opts.All, "all", "a", false, "all sandboxes of your key")
	flags.VarP(&opts.Metadata, "metadata", "m", "with --all: only sandboxes with this metadata, repeatable")
	flags.VarP(&opts.States, "state", "s", "with --all: only sandboxes in these states, running or paused")
	flags.Var(&opts.CI, "ci", "with --all: only sandboxes of this CI job, or with --ci=run of\nthis run")
	flags.Lookup("ci").NoOptDefVal = string(ciJob)
	flags.Var(&opts.OlderThan, "older-than", "with --all: only sandboxes that started, or were resumed, longer ago")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "with --all: print the IDs, and kill nothing")
	flags.BoolVar(&opts.IgnoreMissing, "ignore-missing", false, "a sandbox that does not exist counts as killed")
	flags.BoolVarP(&opts.Yes, "yes", "y", false, "do not ask")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// killNamed kills the sandboxes of the command line. If an ID is repeated, the sandbox is killed
// once.
func killNamed(ctx context.Context, opts *killOptions) (err error) {
	defer cmdutil.Closing(opts.Find, &err)
	return killAll(ctx, opts, namedTargets(ctx, opts.Find, opts.IDs))
}

// killListed lists the sandboxes and asks whether to kill them. It kills them if the answer is yes.
func killListed(ctx context.Context, opts *killOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	var infos []sandbox.Info
	var targets []*target
	for info, err := range conn.List(ctx, &sandbox.ListParams{Metadata: opts.Metadata, States: opts.States}) {
		if err != nil {
			return err
		}
		if time.Since(info.StartedAt) < time.Duration(opts.OlderThan) {
			continue
		}
		infos = append(infos, info)
		targets = append(targets, &target{id: info.ID, conn: conn})
	}
	if len(infos) == 0 {
		if !opts.Quiet {
			fmt.Fprintln(opts.IO.Err, "No sandboxes.")
		}
		return opts.Report(nil)
	}
	if opts.DryRun {
		return opts.Report(outcomes(targets))
	}
	if !opts.Yes {
		if err := writeSandboxes(opts.IO.Err, opts.IO.ErrWidth, infos, opts.IO.ErrIsTerminal); err != nil {
			return err
		}
		question := fmt.Sprintf("Kill these %d sandboxes?", len(infos))
		if len(infos) == 1 {
			question = "Kill this sandbox?"
		}
		if err := cmdutil.Confirm(ctx, opts.IO, question); err != nil {
			return err
		}
	}
	return killAll(ctx, opts, targets)
}

func killAll(ctx context.Context, opts *killOptions, targets []*target) error {
	forEach(targets, func(t *target) error {
		err := t.conn.Kill(ctx, t.id)
		if errors.Is(err, api.ErrNotFound) && (opts.IgnoreMissing || opts.All) {
			return nil // it ended after the listing
		}
		return err
	})
	return opts.Report(outcomes(targets))
}
