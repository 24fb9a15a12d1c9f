package cmdutil

import (
	"context"

	"github.com/spf13/cobra"
)

// Complete returns what list finds on the service of cmd, and without --local and an address
// also on the user's local cloud if it is running. Failures are no choices: a shell that
// completes a word has no place for errors.
func (f *Factory) Complete(ctx context.Context, cmd *cobra.Command, list func(context.Context, *Connection) ([]string, error)) (choices []string) {
	f.flags.quiet = true
	isLocal := false
	if flag := cmd.Flags().Lookup("local"); flag != nil {
		isLocal = flag.Value.String() == "true"
	}
	where, err := f.where(cmd, isLocal, LocalRunning)
	if err != nil {
		return nil
	}
	services := []Where{where}
	if where == remote && !f.hasAddress() && !cmd.Flags().Changed("local") {
		services = []Where{LocalRunning, remote}
	}
	for _, service := range services {
		found, err := f.listOn(ctx, service, list)
		choices = append(choices, found...)
		if err != nil {
			f.Logger().DebugContext(ctx, "no choices", "error", Message(err))
		}
	}
	return choices
}

func (f *Factory) listOn(ctx context.Context, service Where, list func(context.Context, *Connection) ([]string, error)) (found []string, err error) {
	conn, err := f.open(ctx, service, &ResourceFlags{})
	if err != nil {
		return nil, err
	}
	defer Closing(conn, &err)
	return list(ctx, conn)
}
