package sandbox

import (
	"context"
	"slices"

	"github.com/e2bctl/e2bctl/api"
)

// AllTraffic in [Network].DenyOut denies everything that AllowOut does not hold.
const AllTraffic = api.AllTraffic

// privateNetworks are those that the internet does not have.
var privateNetworks = []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}

// Network says what a sandbox may reach. AllowOut beats DenyOut. The zero value
// leaves it to the service, which never lets a sandbox reach its own machines.
//
// A name is allowed to programs by what they send when they connect to port 80 or
// 443, the Host of HTTP or the server name of TLS; other ports need an address, or
// a program that uses the HTTP proxy of its environment. What is inside of TLS
// nobody looks at: a server that answers for an allowed name may answer for
// others of its own too.
type Network struct {
	// AllowOut are addresses, networks such as 203.0.113.0/24, and names:
	// "example.com", "*.example.com" for all names below it, "*" for any. Names
	// need [AllTraffic] in DenyOut.
	AllowOut []string
	// DenyOut are addresses and networks.
	DenyOut []string
	// DenyPrivate adds the private networks to DenyOut.
	DenyPrivate bool
}

func (n Network) wire() api.Network {
	w := api.Network{AllowOut: slices.Clone(n.AllowOut), DenyOut: slices.Clone(n.DenyOut)}
	if n.DenyPrivate {
		w.DenyOut = append(w.DenyOut, privateNetworks...)
	}
	return w
}

// WithNetwork says what the sandbox may reach. It and [WithInternet] may both be
// given.
func WithNetwork(n Network) Option {
	return func(c *config) error {
		w := n.wire()
		c.network = &w
		return nil
	}
}

// SetNetwork replaces what the sandbox may reach from now on, as a whole: what n
// leaves out is cleared, and [WithInternet] too. The local cloud cuts what is
// connected; another service may leave it.
func (sb *Sandbox) SetNetwork(ctx context.Context, n Network) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := sb.client.api.Sandboxes.SetNetwork(ctx, sb.ID(), &api.NetworkParams{Network: n.wire()}); err != nil {
		return sb.failed(ctx, "set network", missing(sb.ID(), err))
	}
	return nil
}

// offline tells whether the service says that the sandbox reaches nothing but
// what it is allowed.
func (sb *Sandbox) offline(ctx context.Context) bool {
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return false // it only explains another failure
	}
	return info.AllowInternetAccess != nil && !*info.AllowInternetAccess ||
		info.Network != nil && slices.Contains(info.Network.DenyOut, AllTraffic)
}
