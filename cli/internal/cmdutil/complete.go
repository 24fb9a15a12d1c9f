package cmdutil

import (
	"context"

	"github.com/spf13/cobra"
)

// Complete returns the choices that list returns for the service of cmd. Without --local and
// without an address, it also calls list for the user's local cloud if that is running. It logs
// errors instead of returning them, because a shell cannot show an error while it completes a word.
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
