package cli

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

func newCmdCode(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("code", "Run code in a sandbox's kernel", newCmdCodeRun(f))
}
