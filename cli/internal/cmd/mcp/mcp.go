// Package mcp has e2bctl mcp: sandboxes for the clients of agents.
package mcp

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// NewCmdMCP returns e2bctl mcp.
func NewCmdMCP(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("mcp", "Give the client of an agent a sandbox", newCmdInstall(f))
}
