package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// wants says what a command wants to whom gave other arguments, which cobra would
// tell how many "arg(s)" it received.
func wants(what string, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) != nil {
			return errors.New("want " + what)
		}
		return nil
	}
}

// noArguments is of a command that takes flags alone.
var noArguments = wants("no arguments", cobra.NoArgs)
