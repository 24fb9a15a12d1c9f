// Package local implements e2bctl local: the local cloud that the other commands share.
package local

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// NewCmdLocal returns e2bctl local.
func NewCmdLocal(f *cmdutil.Factory) *cobra.Command {
	group := cmdutil.NewGroup("local", "The E2B-compatible cloud on this machine",
		newCmdUp(f),
		newCmdDown(f),
		newCmdEnv(f),
		newCmdStatus(f),
		newCmdLogs(f),
		newCmdAsk(f),
		newCmdPrune(f),
		newCmdReset(f),
		newCmdSetup(f),
		newCmdTrust(f),
	)
	group.Long = "An E2B-compatible cloud in one process on this machine: no account, no Docker,\nno KVM, no root. Any E2B SDK works against it once its variables are set."
	group.Example = `  e2bctl local setup
  e2bctl local up
  eval "$(e2bctl local env)"`
	return group
}
