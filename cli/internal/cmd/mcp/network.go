package mcp

import (
	"errors"
	"slices"

	"github.com/e2bctl/e2bctl/sandbox"
)

// network is a flag value that selects the hosts that sandboxes may reach.
type network string

const (
	networkNone network = "none"
	networkPyPI network = "pypi"
	networkAll  network = "all"
	networkAsk  network = "ask"
)

func (*network) Type() string     { return "none|pypi|all|ask" }
func (n *network) String() string { return string(*n) }

func (n *network) Set(text string) error {
	if !slices.Contains([]network{networkNone, networkPyPI, networkAll, networkAsk}, network(text)) {
		return errors.New("want none, pypi, all or ask")
	}
	*n = network(text)
	return nil
}

// options returns the options of a sandbox with this network. Every mode denies private networks.
func (n network) options() []sandbox.CreateOption {
	rules := sandbox.Network{DenyPrivate: true}
	switch n {
	case networkNone:
		return []sandbox.CreateOption{sandbox.WithInternet(false)}
	case networkPyPI:
		rules.AllowOut = []string{"pypi.org", "files.pythonhosted.org"}
		rules.DenyOut = []string{sandbox.AllTraffic}
	}
	return []sandbox.CreateOption{sandbox.WithNetwork(rules)}
}

// describe returns a description of the network for the model.
func (n network) describe() string {
	switch n {
	case networkNone:
		return "The sandbox has no network: work with what is installed."
	case networkPyPI:
		return "The sandbox reaches PyPI, for pip install, and nothing else."
	case networkAsk:
		return "The sandbox reaches a host only if the user allows it, who is asked at the first connection."
	}
	return "The sandbox reaches the internet, but no private network."
}
