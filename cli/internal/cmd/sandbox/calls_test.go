package sandbox

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// TestCalls checks the requests, the output and the errors of the commands.
func TestCalls(t *testing.T) {
	cmdtest.Run(t, func(f *cmdutil.Factory) (all []*cobra.Command) {
		for _, command := range []func(*cmdutil.Factory) *cobra.Command{
			NewCmdConnect, NewCmdCopy, NewCmdCreate, NewCmdEvents, NewCmdExec, NewCmdFork, NewCmdInfo, NewCmdKill, NewCmdList, NewCmdLogs, NewCmdMetrics,
			NewCmdOpen, NewCmdPause, NewCmdPortForward, NewCmdResize, NewCmdResume, NewCmdRun, NewCmdSync, NewCmdTimeout, NewCmdURL, NewCmdWait,
		} {
			all = append(all, command(f))
		}
		return all
	})
}
