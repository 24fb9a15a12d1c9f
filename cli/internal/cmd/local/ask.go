package local

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

func newCmdAsk(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("ask", "List and take back what was always allowed", newCmdAskList(f), newCmdAskForget(f))
}

// allowedView is a port of a host that is always allowed, as -o json shows it.
type allowedView struct {
	Address string `json:"address"`
	Host    string `json:"host"`
	Port    int    `json:"port"`
}

// showAllowed prints ports of hosts, such as pypi.org:443.
func showAllowed(f *cmdutil.Factory, addresses []string) error {
	if f.JSON() {
		views := make([]allowedView, len(addresses))
		for i, address := range addresses {
			host, port := splitPort(address)
			views[i] = allowedView{address, host, port}
		}
		return cmdutil.WriteJSON(f.IO.Out, views)
	}
	for _, address := range addresses {
		if _, err := fmt.Fprintln(f.IO.Out, cmdutil.Printable(address)); err != nil {
			return err
		}
	}
	return nil
}

// splitPort returns the host and the port of an address. The port is 0 if the address has none.
func splitPort(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	if port, err = strconv.Atoi(text); err != nil {
		return address, 0
	}
	return host, port
}

func newCmdAskList(f *cmdutil.Factory) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the hosts and ports that sandboxes reach without a question",
		Long: `List the hosts and ports for which a question of e2bctl local up --ask was answered
with always. They belong to the state directory of that local cloud.`,
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
			if len(hosts) == 0 && f.IO.OutIsTerminal && !f.JSON() {
				fmt.Fprintf(f.IO.Err, "No hosts are always allowed in %s.\n", cmdutil.Printable(dir))
			}
			return showAllowed(f, hosts)
		},
	}
	addStateDir(cmd, &state)
	return cmd
}

func newCmdAskForget(f *cmdutil.Factory) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "forget <host>[:<port>]",
		Short: "Ask about a host again",
		Long: `Take a port of a host out of those that are always allowed, or all ports of the host, and
print what was taken out. The next sandbox that wants to reach it makes a question again.
Sandboxes that were allowed to reach it may still do so until they end.`,
		Example: `  e2bctl local ask forget pypi.org:443
  e2bctl local ask forget pypi.org`,
		Args: cmdutil.Wants("the name or address of a host", cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := stateDirOf(state)
			if err != nil {
				return err
			}
			host, port := splitPort(args[0])
			if name, ok := asciiHost(host); ok {
				host = name
			}
			if port != 0 {
				host = net.JoinHostPort(host, strconv.Itoa(port))
			}
			forgotten, err := localcloud.ForgetHost(dir, host)
			if err != nil {
				return err
			}
			return showAllowed(f, forgotten)
		},
	}
	addStateDir(cmd, &state)
	return cmd
}

// stateDirOf returns the state directory that a flag names. If the flag is "", it returns the
// directory of the running local cloud or, if none runs, the directory of the next one.
func stateDirOf(flag string) (string, error) {
	dir, err := absolute(flag)
	if err != nil {
		return "", err
	}
	dir, _, _, err = stateOf(dir)
	return dir, err
}
