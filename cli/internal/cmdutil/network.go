package cmdutil

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox"
)

// NetworkFlags are the flags for what a sandbox that is created may reach.
type NetworkFlags struct {
	noInternet bool
	allowOut   []string
	denyOut    []string
}

// Add adds the flags to cmd.
func (n *NetworkFlags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&n.noInternet, "no-internet", false, "no access to the internet")
	flags.StringSliceVar(&n.allowOut, "allow-out", nil, "allow an `ADDRESS`, a network or a name even if it is denied,\nrepeatable; names need --deny-out "+sandbox.AllTraffic)
	flags.StringSliceVar(&n.denyOut, "deny-out", nil, "deny an `ADDRESS` or a network, repeatable")
}

// Options returns the options that create a sandbox so.
func (n *NetworkFlags) Options() []sandbox.Option {
	var options []sandbox.Option
	if n.noInternet {
		options = append(options, sandbox.WithInternet(false))
	}
	if len(n.allowOut) > 0 || len(n.denyOut) > 0 {
		options = append(options, sandbox.WithNetwork(sandbox.Network{AllowOut: n.allowOut, DenyOut: n.denyOut}))
	}
	return options
}
