package sandbox

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox"
)

// createFlags are the flags that describe the sandbox to create.
type createFlags struct {
	Template string
	Lifetime time.Duration // 0: a lease, renewed while the command runs
	Envs     map[string]string
	Metadata map[string]string
	Network  networkFlags
}

func (c createFlags) options() []sandbox.Option {
	options := []sandbox.Option{sandbox.WithTemplate(c.Template)}
	if c.Lifetime > 0 {
		options = append(options, sandbox.WithLifetime(c.Lifetime))
	}
	if len(c.Envs) > 0 {
		options = append(options, sandbox.WithEnvs(c.Envs))
	}
	if len(c.Metadata) > 0 {
		options = append(options, sandbox.WithMetadata(c.Metadata))
	}
	return append(options, c.Network.options()...)
}

// networkFlags are the flags for what a sandbox may reach.
type networkFlags struct {
	NoInternet bool
	AllowOut   []string
	DenyOut    []string
}

func (n *networkFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&n.NoInternet, "no-internet", false, "no access to the internet")
	flags.StringSliceVar(&n.AllowOut, "allow-out", nil, "allow an `ADDRESS`, a network or a name even if it is denied,\nrepeatable; names need --deny-out "+sandbox.AllTraffic)
	flags.StringSliceVar(&n.DenyOut, "deny-out", nil, "deny an `ADDRESS` or a network, repeatable")
}

func (n *networkFlags) options() []sandbox.Option {
	var options []sandbox.Option
	if n.NoInternet {
		options = append(options, sandbox.WithInternet(false))
	}
	if len(n.AllowOut) > 0 || len(n.DenyOut) > 0 {
		options = append(options, sandbox.WithNetwork(sandbox.Network{AllowOut: n.AllowOut, DenyOut: n.DenyOut}))
	}
	return options
}
