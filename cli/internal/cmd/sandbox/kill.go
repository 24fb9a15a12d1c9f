package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// killParallel is how many sandboxes are killed at a time.
const killParallel = 10

type killOptions struct {
	IO            *cmdutil.IOStreams
	Quiet         bool
	Open          cmdutil.Opener    // for --all
	Find          *cmdutil.Services // for IDs
	IDs           []string
	All           bool
	Metadata      cmdutil.KeyValues
	IgnoreMissing bool
	Yes           bool
}

// NewCmdKill returns e2bctl kill.
func NewCmdKill(f *cmdutil.Factory) *cobra.Command {
	opts := &killOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "kill [<id>...]",
		Aliases: []string{"rm"},
		Short:   "Kill sandboxes",
		Long: `Kill sandboxes by ID, or with --all every sandbox of your key; -m selects some of
these. The IDs of killed sandboxes are printed. --all lists them and asks first;
without a terminal it needs --yes.`,
		Example: `  e2bctl kill "$ID"
  e2bctl kill --all -m job=42 --yes
  e2bctl kill --ignore-missing "$ID"`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Quiet, opts.IDs = f.Quiet(), args
			switch {
			case opts.All == (len(args) > 0):
				return cmdutil.Usagef(cmd, "want the IDs of sandboxes, or --all")
			case len(opts.Metadata) > 0 && !opts.All:
				return cmdutil.Usagef(cmd, "--metadata needs --all")
			case opts.All && !opts.Yes && !f.IO.InIsTerminal:
				return cmdutil.Usagef(cmd, "--all asks first, but there is no terminal: add --yes")
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
	flags.BoolVar(&opts.IgnoreMissing, "ignore-missing", false, "a sandbox that does not exist counts as killed")
	flags.BoolVarP(&opts.Yes, "yes", "y", false, "do not ask")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// target is a sandbox to kill and the service that has it; without one, err says
// why.
type target struct {
	id   string
	conn *cmdutil.Connection
	err  error
}

// killNamed kills the sandboxes of the command line, each once however often it is
// named.
func killNamed(ctx context.Context, opts *killOptions) (err error) {
	defer cmdutil.Closing(opts.Find, &err)
	var targets []target
	for i, id := range opts.IDs {
		if slices.Contains(opts.IDs[:i], id) {
			continue
		}
		conn, err := opts.Find.Of(ctx, id)
		targets = append(targets, target{id: id, conn: conn, err: err})
	}
	return killAll(ctx, opts, targets)
}

// killListed kills all sandboxes, once they have been shown and the question was
// answered with yes.
func killListed(ctx context.Context, opts *killOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	var infos []*sandbox.Info
	var targets []target
	for info, err := range conn.List(ctx, &sandbox.ListParams{Metadata: opts.Metadata}) {
		if err != nil {
			return err
		}
		infos = append(infos, info)
		targets = append(targets, target{id: info.ID, conn: conn})
	}
	if len(infos) == 0 {
		if !opts.Quiet {
			fmt.Fprintln(opts.IO.Err, "No sandboxes.")
		}
		return nil
	}
	if !opts.Yes {
		if err := writeSandboxes(opts.IO.Err, infos, opts.IO.ErrIsTerminal); err != nil {
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

func killAll(ctx context.Context, opts *killOptions, targets []target) error {
	var failed atomic.Int64
	var group errgroup.Group
	group.SetLimit(killParallel)
	for i := range targets {
		group.Go(func() error {
			t := &targets[i]
			if t.err == nil {
				t.err = t.conn.Kill(ctx, t.id)
			}
			if errors.Is(t.err, api.ErrNotFound) && (opts.IgnoreMissing || opts.All) {
				t.err = nil // it has ended since the listing
			}
			if t.err != nil {
				failed.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait() // errors are in targets
	for _, t := range targets {
		if t.err == nil {
			fmt.Fprintln(opts.IO.Out, cmdutil.Printable(t.id))
		} else if len(targets) > 1 {
			fmt.Fprintf(opts.IO.Err, "%s: %s\n", cmdutil.Printable(t.id), cmdutil.Message(t.err))
		}
	}
	switch {
	case failed.Load() == 0:
		return nil
	case len(targets) == 1:
		return targets[0].err
	}
	return &cmdutil.PartialError{Failed: int(failed.Load()), Total: len(targets)}
}
