package local

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/shell"
)

type downOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Quiet bool
	State string
}

func newCmdDown(f *cmdutil.Factory) *cobra.Command {
	opts := &downOptions{IO: f.IO}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the local cloud and every sandbox in it",
		Long: `End the running local cloud of this user, and wait until it has ended. Paused
sandboxes are kept in its state directory, and those that pause when their time is
over (autoPause) are paused. All others end with it; one that was paused before is kept
as it was then. What is kept is said: the next local cloud on the same directory has it
again, and e2bctl local prune removes it. If none is running, that is not an error.

--state-dir ends the one with that state directory, which may run beside another one.`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			if opts.State, err = absolute(opts.State); err != nil {
				return err
			}
			return downRun(cmd.Context(), opts)
		},
	}
	addStateDir(cmd, &opts.State)
	return cmd
}

// downView is an ended cloud and its remaining data, as -o json shows it.
type downView struct {
	Ended    bool              `json:"ended"`
	StateDir string            `json:"stateDir,omitempty"`
	Kept     []localcloud.Kept `json:"kept"`
}

func downRun(ctx context.Context, opts *downOptions) error {
	place, err := localcloud.FindFor(opts.State)
	if err != nil {
		return err
	}
	record, _ := place.Read() // the zero Record while it starts, or if there is none
	view := downView{Kept: []localcloud.Kept{}}
	if opts.State == "" || record.State == opts.State || place.Separate() {
		view.StateDir = record.State
		if view.Ended, err = place.End(ctx); err != nil {
			return err
		}
	}
	if view.Ended && record.State != "" {
		state, err := localcloud.ReadState(ctx, record.State)
		if err != nil {
			return fmt.Errorf("the local cloud has ended, and its state directory cannot be read: %w", err)
		}
		view.Kept = append(view.Kept, state.Kept...)
		if !opts.JSON && !opts.Quiet {
			sayKept(opts.IO.Err, state)
		}
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, view)
	}
	if opts.Quiet {
		return nil
	}
	if !view.Ended {
		sayNone(opts.IO.Err, opts.State)
		if others := place.Others(); others != "" {
			fmt.Fprintln(opts.IO.Err, cmdutil.Printable(others))
		}
	}
	if opts.State != "" {
		return nil
	}
	beside, err := place.Beside()
	for _, other := range beside {
		fmt.Fprintf(opts.IO.Err, "another one runs on %s; e2bctl local down --state-dir %s ends it\n", other.URL, shell.Quote(other.State))
	}
	return err
}

// sayNone writes that there is no local cloud to end. If the user named a state directory, the
// message is about a cloud with that directory.
func sayNone(w io.Writer, state string) {
	if state != "" {
		fmt.Fprintf(w, "no local cloud is running with the state directory %s\n", cmdutil.Printable(state))
		return
	}
	fmt.Fprintln(w, "no local cloud is running")
}

// sayKept describes the remaining data of a local cloud that has ended. It writes nothing if no
// data remains.
func sayKept(w io.Writer, state localcloud.State) {
	if len(state.Kept) > 0 {
		fmt.Fprintf(w, "%s in %s; the next e2bctl local up has what is kept, e2bctl local prune removes it\n", summary(state.Kept), cmdutil.Printable(state.Dir))
	}
}

// summary returns a text with the number and the size of kept sandboxes.
func summary(kept []localcloud.Kept) string {
	noun := "paused sandboxes are"
	if len(kept) == 1 {
		noun = "paused sandbox is"
	}
	return fmt.Sprintf("%d %s kept, %s,", len(kept), noun, localcloud.Size(localcloud.Bytes(kept)))
}
