package mcp

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// TestCalls checks the requests, the output and the errors of the commands.
func TestCalls(t *testing.T) {
	for _, name := range []string{"CLAUDE_CONFIG_DIR", "CODEX_HOME", "VSCODE_PORTABLE", "VSCODE_APPDATA", "GEMINI_CLI_HOME"} {
		t.Setenv(name, "")
	}
	cmdtest.Run(t, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdMCP(f)} })
}
