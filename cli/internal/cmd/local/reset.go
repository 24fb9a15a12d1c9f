package local

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

type resetOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Quiet bool
	State string
	Yes   bool
}

func newCmdReset(f *cmdutil.Factory) *cobra.Command {
	opts := &resetOptions{IO: f.IO}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "End the local cloud and remove all that it keeps",
		Long: `End the local cloud, if it runs, with all of its sandboxes, and remove all that its
state directory keeps: paused sandboxes, snapshots, templates, volumes, secrets, API keys, and
its own key, so that clients need the key of the next one. It lists the data and asks first;
without a terminal it needs --yes. A damaged state directory is emptied, too.

Only data that a local cloud has made there is removed. The directory stays, with all other
files in it. Links are removed, but their targets stay. The data of e2bctl local setup, the
certificate authority, and the key with which secrets are sealed stay as well.

e2bctl local prune removes only paused sandboxes, or the cache of builds.`,
		Example: `  e2bctl local reset
  e2bctl local reset --yes --state-dir ~/project/.e2b`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			if !opts.Yes && !f.IO.InIsTerminal {
				return cmdutil.Usagef(cmd, "it asks first, but there is no terminal: add --yes")
			}
			if opts.State, err = absolute(opts.State); err != nil {
				return err
			}
			return resetRun(cmd.Context(), opts)
		},
	}
	addStateDir(cmd, &opts.State)
	cmd.Flags().BoolVarP(&opts.Yes, "yes", "y", false, "do not ask")
	return cmd
}

// resetView describes the removed data, as -o json shows it.
type resetView struct {
	Ended     bool             `json:"ended"`
	StateDir  string           `json:"stateDir"`
	Sandboxes localcloud.Taken `json:"sandboxes"` // the removed sandboxes, which were paused
	Layers    localcloud.Taken `json:"layers"`
	Uploads   localcloud.Taken `json:"uploads"`
	Volumes   localcloud.Taken `json:"volumes"`
}

func resetRun(ctx context.Context, opts *resetOptions) error {
	dir, record, place, err := stateOf(opts.State)
	if err != nil {
		return err
	}
	if err := localcloud.VerifyState(dir); err != nil {
		return err
	}
	state, err := localcloud.Survey(ctx, dir)
	if err != nil {
		return err
	}
	runs := record.State == dir
	if !opts.Yes {
		sayLost(opts.IO.Err, state, record, runs)
		if err := cmdutil.Confirm(ctx, opts.IO, "Remove all of this?"); err != nil {
			return err
		}
	}
	view := resetView{
		StateDir: dir, Sandboxes: localcloud.Taken{Count: len(state.Kept), Bytes: localcloud.Bytes(state.Kept)},
		Layers: state.Space.Layers, Uploads: state.Space.Uploads, Volumes: volumesOf(state),
	}
	if runs {
		if view.Ended, err = place.End(ctx); err != nil {
			return err
		}
	}
	if err := localcloud.Reset(ctx, dir); err != nil {
		return err
	}
	switch {
	case opts.JSON:
		return cmdutil.WriteJSON(opts.IO.Out, view)
	case !opts.Quiet:
		fmt.Fprintf(opts.IO.Err, "%s is empty\n", cmdutil.Printable(dir))
	}
	return nil
}

// sayLost lists the data that a reset removes.
func sayLost(w io.Writer, state localcloud.State, record localcloud.Record, runs bool) {
	if runs {
		fmt.Fprintf(w, "This ends the local cloud on %s with its sandboxes.\n", cmdutil.Printable(record.URL))
	}
	fmt.Fprintf(w, "This removes from %s:\n", cmdutil.Printable(state.Dir))
	for _, one := range []struct {
		one, more string
		localcloud.Taken
	}{
		{"paused sandbox", "paused sandboxes", localcloud.Taken{Count: len(state.Kept), Bytes: localcloud.Bytes(state.Kept)}},
		{"layer of snapshots and templates", "layers of snapshots and templates", state.Space.Layers},
		{"archive of builds", "archives of builds", state.Space.Uploads},
		{"volume", "volumes", volumesOf(state)},
	} {
		noun := one.more
		if one.Count == 1 {
			noun = one.one
		}
		fmt.Fprintf(w, "  %d %s, %s\n", one.Count, noun, localcloud.Size(one.Bytes))
	}
	fmt.Fprintln(w, "  all secrets, API keys, and the cloud's own key")
}
