package sandbox

import (
	"context"
	"errors"
	"fmt"
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
	Open          cmdutil.Opener
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
these. The IDs of killed sandboxes are printed. --all asks first; without a
terminal it needs --yes.`,
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
			if opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning); err != nil {
				return err
			}
			return killRun(cmd.Context(), opts)
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

func killRun(ctx context.Context, opts *killOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	ids := opts.IDs
	if opts.All {
		if ids, err = listIDs(ctx, conn, opts.Metadata); err != nil {
			return err
		}
		if len(ids) == 0 {
			if !opts.Quiet {
				fmt.Fprintln(opts.IO.Err, "No sandboxes.")
			}
			return nil
		}
		if !opts.Yes {
			question := fmt.Sprintf("Kill %d sandboxes?", len(ids))
			if len(ids) == 1 {
				question = "Kill 1 sandbox?"
			}
			if err := cmdutil.Confirm(opts.IO, question); err != nil {
				return err
			}
		}
	}
	return killAll(ctx, conn, opts, ids)
}

func listIDs(ctx context.Context, conn *cmdutil.Connection, metadata map[string]string) ([]string, error) {
	var ids []string
	for info, err := range conn.List(ctx, &sandbox.ListParams{Metadata: metadata}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, info.ID)
	}
	return ids, nil
}

func killAll(ctx context.Context, conn *cmdutil.Connection, opts *killOptions, ids []string) error {
	var failed atomic.Int64
	results := make([]error, len(ids))
	var group errgroup.Group
	group.SetLimit(killParallel)
	for i, id := range ids {
		group.Go(func() error {
			err := conn.Kill(ctx, id)
			if errors.Is(err, api.ErrNotFound) && (opts.IgnoreMissing || opts.All) {
				err = nil // it has ended since the listing
			}
			if err != nil {
				failed.Add(1)
			}
			results[i] = err
			return nil
		})
	}
	_ = group.Wait() // errors are in results
	for i, err := range results {
		if err == nil {
			fmt.Fprintln(opts.IO.Out, cmdutil.Printable(ids[i]))
		} else if len(ids) > 1 {
			fmt.Fprintf(opts.IO.Err, "%s: %s\n", cmdutil.Printable(ids[i]), cmdutil.Printable(err.Error()))
		}
	}
	switch {
	case failed.Load() == 0:
		return nil
	case len(ids) == 1:
		return results[0]
	}
	return &cmdutil.PartialError{Failed: int(failed.Load()), Total: len(ids)}
}
