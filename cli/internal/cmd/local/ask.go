package local

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

func newCmdAsk(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("ask", "List and take back the hosts that were always allowed", newCmdAskList(f), newCmdAskForget(f))
}

// allowedView is a host that is always allowed, as -o json shows it.
type allowedView struct {
	Host string `json:"host"`
}

func newCmdAskList(f *cmdutil.Factory) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the hosts that sandboxes reach without a question",
		Long: `List the hosts for which a question of e2bctl local up --ask was answered with always.
They belong to the state directory of that local cloud.`,
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			dir, err := stateDirOf(state)
			if err != nil {
				return err
			}
			hosts, err := localcloud.AllowedHosts(dir)
			if err != nil {
				return err
			}
			if f.JSON() {
				views := make([]allowedView, len(hosts))
				for i, host := range hosts {
					views[i].Host = host
				}
				return cmdutil.WriteJSON(f.IO.Out, views)
			}
			for _, host := range hosts {
				if _, err := fmt.Fprintln(f.IO.Out, cmdutil.Printable(host)); err != nil {
					return err
				}
			}
			if len(hosts) == 0 && f.IO.OutIsTerminal {
				fmt.Fprintf(f.IO.Err, "No hosts are always allowed in %s.\n", cmdutil.Printable(dir))
			}
			return nil
		},
	}
	addStateDir(cmd, &state)
	return cmd
}

func newCmdAskForget(f *cmdutil.Factory) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "forget <host>",
		Short: "Ask about a host again",
		Long: `Take a host out of those that are always allowed, and print it. The next sandbox that
wants to reach it makes a question again. Sandboxes that were allowed to reach it may still
do so until they end.`,
		Example: `  e2bctl local ask forget pypi.org`,
		Args:    cmdutil.Wants("the name or address of a host", cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := stateDirOf(state)
			if err != nil {
				return err
			}
			host := args[0]
			if name, ok := asciiHost(host); ok {
				host = name
			}
			if err := localcloud.ForgetHost(dir, host); err != nil {
				return err
			}
			if f.JSON() {
				return cmdutil.WriteJSON(f.IO.Out, allowedView{host})
			}
			_, err = fmt.Fprintln(f.IO.Out, cmdutil.Printable(host))
			return err
		},
	}
	addStateDir(cmd, &state)
	return cmd
}

// stateDirOf returns the state directory that a flag names. Without the flag it
// returns that of the running local cloud, or, if none runs, of the next one.
func stateDirOf(flag string) (string, error) {
	dir, err := absolute(flag)
	if err != nil {
		return "", err
	}
	dir, _, _, err = stateOf(dir)
	return dir, err
}
