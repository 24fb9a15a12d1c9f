package local

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// togetherFlags are the flags for the limits and the network access of all
// sandboxes together.
type togetherFlags struct {
	most       cmdutil.Count
	each       cmdutil.MostFlags
	noPrivate  bool
	proxyNames bool
	services   hostServices
}

func (o *togetherFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&o.most, "max-sandboxes", "how many sandboxes may run at once (default 100)")
	o.each.Add(flags)
	flags.BoolVar(&o.noPrivate, "no-private-networks", false, "deny sandboxes private addresses, such as those of a company's network")
	flags.BoolVar(&o.proxyNames, "proxy-names", false, "ask the proxy in HTTPS_PROXY for names instead of addresses: it\ndecides what they lead to")
	flags.Var(&o.services, "host-service", "let sandboxes reach a service of this machine as\nNAME.host.internal, such as db=127.0.0.1:5432, or\ndb:5432=unix:/run/db.sock, repeatable")
}

// arguments returns the flags that the user gave, as arguments for another process of e2bctl.
func (o *togetherFlags) arguments() []string {
	arguments := o.each.Arguments()
	if o.most > 0 {
		arguments = append(arguments, "--max-sandboxes", o.most.String())
	}
	if o.noPrivate {
		arguments = append(arguments, "--no-private-networks")
	}
	if o.proxyNames {
		arguments = append(arguments, "--proxy-names")
	}
	return append(arguments, o.services.arguments()...)
}

// options returns the options that start a local cloud with the settings of the flags.
func (o *togetherFlags) options() []local.Option {
	options := append(o.each.Options(), local.WithMaxSandboxes(int(o.most)))
	if o.noPrivate {
		options = append(options, local.WithoutPrivateNetworks())
	}
	if o.proxyNames {
		options = append(options, local.WithProxyNames())
	}
	return append(options, o.services.options()...)
}
