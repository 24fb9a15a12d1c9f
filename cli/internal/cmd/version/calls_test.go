package version

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// TestCalls checks the requests, the output and the errors of the commands.
func TestCalls(t *testing.T) {
	cmdtest.Run(t, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdVersion(f)} })
}
