package cli

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

func newCmdLocal(f *cmdutil.Factory) *cobra.Command {
	group := cmdutil.NewGroup("local", "The E2B-compatible cloud on this machine",
		newCmdLocalUp(f),
		newCmdLocalDown(f),
		newCmdLocalEnv(f),
		newCmdLocalSetup(f),
	)
	group.Long = "An E2B-compatible cloud in one process on this machine: no account, no Docker,\nno KVM, no root. Any E2B SDK works against it once its variables are set."
	group.Example = `  e2bctl local setup
  e2bctl local up
  eval "$(e2bctl local env)"`
	return group
}
