package cmdutil

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// errNotRead is the cause of a context that ended because standard output no longer has a reader.
var errNotRead = errors.New("the reader of standard output has gone")

// AddFollowFlag adds a flag with which a command goes on until it is stopped. With the flag, the command
// also ends when the reader of standard output has gone. Otherwise it would end only at its next line,
// which may never come. cmd.RunE must be set.
func (f *Factory) AddFollowFlag(cmd *cobra.Command, follow *bool, name, shorthand, usage string) {
	cmd.Flags().BoolVarP(follow, name, shorthand, false, usage)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *follow {
			ctx, stop := f.IO.whileRead(cmd.Context())
			defer stop()
			cmd.SetContext(ctx)
		}
		return run(cmd, args)
	}
}

// whileRead returns a context that ends when the reader of standard output has gone. The caller must
// call stop.
func (ios *IOStreams) whileRead(ctx context.Context) (while context.Context, stop func()) {
	while, cancel := context.WithCancelCause(ctx)
	unwatch := WatchReader(ios.Out, func() {
		ios.outClosed.Store(true)
		cancel(errNotRead)
	})
	return while, func() {
		unwatch()
		cancel(nil)
	}
}
