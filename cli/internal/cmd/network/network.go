// Package network implements e2bctl network: the hosts that a sandbox may reach.
package network

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// NewCmdNetwork returns e2bctl network.
func NewCmdNetwork(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("network", "Show and change what a sandbox may reach", newCmdGet(f), newCmdSet(f))
}

// command returns a command about the network of one sandbox. The command does not resume a paused
// sandbox. If check is not nil, it runs before any request is sent.
func command(f *cmdutil.Factory, cmd *cobra.Command, check func() error, run func(ctx context.Context, conn *cmdutil.Connection, id string) error) *cobra.Command {
	var isLocal bool
	cmd.Args = cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1))
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		open, err := f.SandboxOpener(cmd, isLocal, args[0])
		if err != nil {
			return err
		}
		conn, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer cmdutil.Closing(conn, &err)
		return run(cmd.Context(), conn, args[0])
	}
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}
