package local

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

type downOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Quiet bool
}

func newCmdDown(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the local cloud and every sandbox in it",
		Long: `End the running local cloud of this user, and wait until it has ended. Paused
sandboxes are kept in its state directory, and those that pause when their time is
over (autoPause) are paused. All others end with it; one that was paused before is kept
as it was then. What is kept is said: the next local cloud on the same directory has it
again, and e2bctl local prune removes it. If none is running, that is not an error.`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return downRun(cmd.Context(), &downOptions{IO: f.IO, JSON: f.JSON(), Quiet: f.Quiet()})
		},
	}
}

// downView is what has ended and what is left, as -o json shows it.
type downView struct {
	Ended    bool              `json:"ended"`
	StateDir string            `json:"stateDir,omitempty"`
	Kept     []localcloud.Kept `json:"kept"`
}

func downRun(ctx context.Context, opts *downOptions) error {
	place, err := localcloud.Find()
	if err != nil {
		return err
	}
	record, _ := place.Read() // the zero Record while it starts, or if there is none
	view := downView{StateDir: record.State, Kept: []localcloud.Kept{}}
	if view.Ended, err = place.End(ctx); err != nil {
		return err
	}
	if view.Ended && record.State != "" {
		state, err := localcloud.ReadState(ctx, record.State)
		if err != nil {
			return fmt.Errorf("it has ended; what it kept: %w", err)
		}
		view.Kept = append(view.Kept, state.Kept...)
		if !opts.JSON && !opts.Quiet {
			sayKept(opts.IO.Err, state)
		}
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, view)
	}
	if !view.Ended && !opts.Quiet {
		fmt.Fprintln(opts.IO.Err, "no local cloud is running")
		if others := place.Others(); others != "" {
			fmt.Fprintln(opts.IO.Err, cmdutil.Printable(others))
		}
	}
	return nil
}

// sayKept says what is left of a local cloud that has ended, if anything is.
func sayKept(w io.Writer, state localcloud.State) {
	if len(state.Kept) > 0 {
		fmt.Fprintf(w, "%s in %s; the next e2bctl local up has what is kept, e2bctl local prune removes it\n", summary(state.Kept), cmdutil.Printable(state.Dir))
	}
}

// summary says how much is kept.
func summary(kept []localcloud.Kept) string {
	noun := "paused sandboxes are"
	if len(kept) == 1 {
		noun = "paused sandbox is"
	}
	return fmt.Sprintf("%d %s kept, %s,", len(kept), noun, localcloud.Size(localcloud.Bytes(kept)))
}
