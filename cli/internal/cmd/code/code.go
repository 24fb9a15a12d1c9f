// Package code implements e2bctl code: code in the kernels of a sandbox.
package code

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// NewCmdCode returns e2bctl code.
func NewCmdCode(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("code", "Run code in a sandbox's kernel", newCmdRepl(f), newCmdRun(f))
}
