package sandbox

import (
	"context"
	"maps"
	"slices"

	"github.com/e2bctl/e2bctl/api"
)

// AllTraffic in [Network].DenyOut denies everything that AllowOut does not list.
const AllTraffic = api.AllTraffic

// privateNetworks are the networks that are not part of the internet.
var privateNetworks = []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}

// Network sets what a sandbox may reach. AllowOut takes precedence over DenyOut.
// The zero value leaves the decision to the service, which never lets a sandbox
// reach its own machines.
//
// Whether a connection to port 80 or 443 goes to an allowed name is decided by
// what the program sends: the Host of HTTP or the server name of TLS. Other ports
// need an address, or a program that uses the HTTP proxy of its environment. The
// content of TLS is not inspected: a server that answers for an allowed name may
// also answer for other names of its own.
type Network struct {
	// AllowOut are addresses, networks such as 203.0.113.0/24, and names:
	// "example.com", "*.example.com" for all names below it, "*" for any. Names
	// need [AllTraffic] in DenyOut. The local cloud also takes what [Sandbox.Host] of
	// another sandbox returns, here and in Headers.
	AllowOut []string
	// DenyOut are addresses and networks.
	DenyOut []string
	// DNSServers are IPv4 addresses of name servers, at most 10, that may be reached if
	// AllowOut has names. Names that may be reached resolve without them.
	DNSServers []string
	// DenyPrivate adds the private networks to DenyOut.
	DenyPrivate bool
	// Headers are put into the HTTPS requests to hosts on port 443, in place of those that
	// programs send: by the name of the host ("example.com", or "*.example.com" for all
	// names below it), then by that of the header. With [SecretRef], programs use a secret
	// that never enters the sandbox; a host that repeats what it is sent gives it away.
	// TRACE asks for that: the local cloud sends only GET, HEAD, POST, PUT, PATCH, DELETE
	// and OPTIONS to these hosts.
	// They allow nothing: the host must be one that the sandbox may reach. A sandbox can be
	// given others later only if it was created with some.
	Headers map[string]map[string]string
	// Ask is called before a host is reached that neither AllowOut nor DenyOut names, with
	// its name or address, and says whether it may be. It adds [AllTraffic] to DenyOut. The
	// answer holds for the sandbox's life, for every port; ask once is ask for all
	// connections. If there is none within 30 seconds, if Ask panics, or if no handle that
	// has it is open, it is no; ctx ends then, and with the handle, which does not wait for
	// it. Up to 32 questions are asked at the same time.
	//
	// Names are asked about before they are looked up. A program that cannot wait for that,
	// which most do for 10 seconds, or for 30 if they use the proxy of their environment,
	// has to try again. Copies of [Sandbox.Fork] ask anew.
	//
	// Only the local cloud asks. For other services the error is [errors.ErrUnsupported],
	// and nothing is created, changed or resumed.
	// With [Connect], Ask is called for a sandbox that was created with one; the other
	// rules do not matter.
	Ask func(ctx context.Context, host string) bool
}

// SecretRef stands for the value of a secret in [Network].Headers: "Bearer " +
// SecretRef("openai"). See [api.SecretService].
func SecretRef(name string) string { return "${e2b.secrets." + name + "}" }

func (n Network) wire() api.Network {
	w := api.Network{AllowOut: slices.Clone(n.AllowOut), DenyOut: slices.Clone(n.DenyOut), DNSServers: slices.Clone(n.DNSServers)}
	if n.DenyPrivate {
		w.DenyOut = append(w.DenyOut, privateNetworks...)
	}
	if n.Ask != nil {
		w.Ask = true
		if !slices.Contains(w.DenyOut, AllTraffic) {
			w.DenyOut = append(w.DenyOut, AllTraffic)
		}
	}
	for host, headers := range n.Headers {
		if w.Rules == nil {
			w.Rules = map[string][]api.NetworkRule{}
		}
		w.Rules[host] = []api.NetworkRule{{Transform: &api.NetworkTransform{Headers: maps.Clone(headers)}}}
	}
	return w
}

// WithNetwork sets what the sandbox may reach. It can be combined with
// [WithInternet].
func WithNetwork(n Network) Option {
	return func(c *config) error {
		w := n.wire()
		c.network, c.ask = &w, n.Ask
		return nil
	}
}

// SetNetwork replaces all rules about what the sandbox may reach from now on:
// what n leaves out is cleared, including the effect of [WithInternet]. The local
// cloud also cuts existing connections; another service may leave them open.
func (sb *Sandbox) SetNetwork(ctx context.Context, n Network) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := sb.client.api.Sandboxes.SetNetwork(ctx, sb.ID(), &api.NetworkParams{Network: n.wire()}); err != nil {
		return sb.failed(ctx, "set network", missing(sb.ID(), err))
	}
	sb.asker.use(n.Ask)
	return nil
}

// offline reports whether the service says that the sandbox reaches only what its
// rules allow.
func (sb *Sandbox) offline(ctx context.Context) bool {
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return false // it only explains another failure
	}
	return info.AllowInternetAccess != nil && !*info.AllowInternetAccess ||
		info.Network != nil && slices.Contains(info.Network.DenyOut, AllTraffic)
}
