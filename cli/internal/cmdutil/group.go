package cmdutil

import (
	"fmt"

	"github.com/spf13/cobra"
)

// NewGroup returns a command that only contains others. For an unknown one
// cobra would print help and succeed; a script must see that as a mistake.
func NewGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}
