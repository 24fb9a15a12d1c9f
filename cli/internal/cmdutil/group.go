package cmdutil

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// NewGroup returns a command that only contains other commands.
func NewGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short}
	group.AddCommand(commands...)
	MakeGroup(group)
	return group
}

// MakeGroup makes cmd a command that only contains other commands. An unknown subcommand is then an
// error. cobra would print help and succeed, and a script would not notice the mistake.
func MakeGroup(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2 // cobra's default, which it only sets for the root
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		message := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			message += "\n\nDid you mean this?\n\t" + strings.Join(near, "\n\t") + "\n"
		}
		return errors.New(message)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}
