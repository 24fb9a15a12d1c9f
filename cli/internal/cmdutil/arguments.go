package cmdutil

import (
	"errors"

	"github.com/spf13/cobra"
)

// Wants replaces the error for a wrong number of arguments with one that names
// the arguments; cobra would say how many "arg(s)" it received.
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
