package cmdutil

import (
	"errors"

	"github.com/spf13/cobra"
)

// Wants returns check with another error for a wrong number of arguments. That error contains what,
// a description of the arguments. cobra's own error only counts the "arg(s)" that it received.
func Wants(what string, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) != nil {
			return errors.New("want " + what)
		}
		return nil
	}
}

// NoArguments is for commands that only take flags.
func NoArguments(cmd *cobra.Command, args []string) error {
	return Wants("no arguments", cobra.NoArgs)(cmd, args)
}
