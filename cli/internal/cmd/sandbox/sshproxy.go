package sandbox

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/sshserver"
	"github.com/e2bctl/e2bctl/sandbox"
)

type sshProxyOptions struct {
	IO   *cmdutil.IOStreams
	Open cmdutil.Opener
	ID   string
}

// NewCmdSSHProxy returns e2bctl ssh-proxy.
func NewCmdSSHProxy(f *cmdutil.Factory) *cobra.Command {
	opts := &sshProxyOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "ssh-proxy <id>",
		Short: "Serve one connection of ssh to a sandbox, on stdin and stdout",
		Long: `Serve one connection of ssh to a sandbox, on standard input and output. ssh starts it:
e2bctl ssh-config prints the configuration for that, and e2b-<id> is accepted as the ID.
Commands, shells with and without a terminal, sftp, and forwarded ports and sockets of
the sandbox work. Agents, X11, and ports and sockets of this machine are not forwarded,
and no other machine is reached through the sandbox: those requests are refused.

A sandbox that is paused is resumed, and it is kept alive meanwhile. Commands and
terminals end with the connection. sftp reads and writes files with the rights of root,
and files that it makes belong to the user.`,
		Example: `  ssh -F <(e2bctl ssh-config "$ID") e2b-"$ID" uname -a`,
		Args:    cmdutil.Wants("the ID of a sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.ID = strings.TrimPrefix(args[0], sshHostPrefix)
			if f.JSON() {
				return cmdutil.Usagef(cmd, "ssh-proxy and -o json exclude each other: its output is for ssh")
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return sshProxyRun(cmd.Context(), opts)
		},
	}
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func sshProxyRun(ctx context.Context, opts *sshProxyOptions) (err error) {
	keys, err := sshKeys()
	if err != nil {
		return err
	}
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := conn.Connect(ctx, opts.ID, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err) // connected to, not created here: it keeps running

	life, end := context.WithCancelCause(ctx)
	broke := make(chan struct{}, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		end(untilEnd(life, conn, opts.ID, broke))
	}()
	defer func() { <-watched }()
	defer end(nil)
	err = sshserver.Serve(life, opts.IO.Reading(life), opts.IO.Out, sshserver.Config{
		Sandbox: sb,
		Keys:    keys,
		Message: func(err error) string { return cmdutil.Printable(cmdutil.Message(err)) },
		Broke: func() {
			select {
			case broke <- struct{}{}:
			default:
			}
		},
	})
	if ctx.Err() != nil {
		return nil // ssh ends this program by a signal, and its user has nothing to learn from that
	}
	return err
}
