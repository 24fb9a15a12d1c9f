package cli

import "github.com/spf13/cobra"

func newCmdCode(f *Factory) *cobra.Command {
	return newCmdGroup("code", "Run code in a sandbox's kernel", newCmdCodeRun(f))
}
