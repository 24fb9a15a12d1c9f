package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/e2bctl/e2bctl/api"
)

// AllTraffic in [Network].DenyOut denies everything that AllowOut does not list.
const AllTraffic = api.AllTraffic

// privateNetworks are the networks that are not part of the internet.
var privateNetworks = []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}

// Network lists the destinations that a sandbox may reach. AllowOut takes precedence over DenyOut.
// The zero value leaves the decision to the service, which never lets a sandbox reach its own
// machines.
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
	// programs send: by the name of the host ("example.com", or "*.example.com" for all names
	// below it), then by that of the header. With [SecretRef], programs use a secret that never
	// enters the sandbox; a host that sends its requests back gives it away. TRACE asks for that:
	// the local cloud sends only GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS to these hosts.
	// They allow nothing: the host must be one that the sandbox may reach. A sandbox can be given
	// others later only if it was created with some.
	Headers map[string]map[string]string
	// EgressProxy is the proxy through which connections leave that the rules allow. A nil
	// proxy leaves none. The local cloud gives it the address that it has checked, or the name
	// where AllowOut has that; the address of the proxy itself must be one that a sandbox may
	// reach.
	EgressProxy *EgressProxy
}

// EgressProxy is a proxy that the connections of a sandbox go through, after the rules of its
// [Network] have allowed them. Programs in the sandbox do not see it. A connection fails where
// the proxy does: none goes past it. Programs learn no reason; a local cloud writes it to the log
// that [Sandbox.Logs] returns, once for each target. DNS questions do not go through the proxy.
type EgressProxy struct {
	// Address is the host and port of a SOCKS5 proxy, "proxy.example.com:1080". The local
	// cloud also takes an HTTP proxy, "http://proxy.example.com:8080".
	Address string
	// Username and Password are for a proxy that asks for them. Each has at most 255 bytes.
	// Services never return the password.
	Username string
	Password Key
	// TLS makes the connection to the proxy secure. A nil TLS uses none.
	TLS *EgressProxyTLS
}

// EgressProxyTLS configures TLS to an [EgressProxy]. The proxy's certificate is always verified.
type EgressProxyTLS struct {
	// Enabled turns TLS on. The other fields need it.
	Enabled bool
	// ServerName is the name in the proxy's certificate. The default is the host of its address.
	ServerName string
	// CACert has CA certificates in PEM for the proxy's certificate, in place of those that the
	// service trusts. Services never return them.
	CACert string
}

func (p *EgressProxy) wire() *api.EgressProxyConfig {
	if p == nil {
		return nil
	}
	w := &api.EgressProxyConfig{Address: p.Address, Username: p.Username, Password: p.Password}
	if p.TLS != nil {
		w.TLS = new(api.EgressProxyTLS(*p.TLS))
	}
	return w
}

func egressProxyOf(w *api.EgressProxyConfig) *EgressProxy {
	if w == nil {
		return nil
	}
	p := &EgressProxy{Address: w.Address, Username: w.Username, Password: w.Password}
	if w.TLS != nil {
		p.TLS = new(EgressProxyTLS(*w.TLS))
	}
	return p
}

// SecretRef stands for the value of a secret in [Network].Headers: "Bearer " +
// SecretRef("openai"). See [Secrets].
func SecretRef(name string) string { return "${e2b.secrets." + name + "}" }

func (n Network) wire() api.Egress {
	w := api.Egress{AllowOut: slices.Clone(n.AllowOut), DenyOut: slices.Clone(n.DenyOut), DNSServers: slices.Clone(n.DNSServers), EgressProxy: n.EgressProxy.wire()}
	if n.DenyPrivate {
		w.DenyOut = append(w.DenyOut, privateNetworks...)
	}
	for host, headers := range n.Headers {
		if w.Rules == nil {
			w.Rules = map[string][]api.NetworkRule{}
		}
		w.Rules[host] = []api.NetworkRule{{Transform: &api.NetworkTransform{Headers: maps.Clone(headers)}}}
	}
	return w
}

// WithNetwork sets the destinations that the sandbox may reach. It can be combined with
// [WithInternet].
func WithNetwork(n Network) CreateOption {
	return createOption(func(c *config) error {
		w := n.wire()
		c.network = &w
		return nil
	})
}

// rules returns what the service is told about the network, nil for nothing.
func (c *sandboxConfig) rules() *api.Egress {
	if c.ask == nil {
		return c.network
	}
	var w api.Egress
	if c.network != nil {
		w = *c.network
	}
	w.Ask = true
	if !slices.Contains(w.DenyOut, AllTraffic) {
		w.DenyOut = append(slices.Clone(w.DenyOut), AllTraffic)
	}
	return &w
}

// SetNetwork replaces all network rules of the sandbox from now on: rules that n leaves out are
// cleared, and so is the effect of [WithInternet]. Only if this handle has [WithAsk], the service
// asks about hosts that no rule names. The local cloud also cuts existing connections; another
// service may leave them open.
func (sb *Sandbox) SetNetwork(ctx context.Context, n Network) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	w := n.wire()
	rules := (&sandboxConfig{network: &w, ask: sb.config.ask}).rules()
	if err := sb.client.api.Sandboxes.SetNetwork(ctx, sb.ID(), &api.NetworkParams{Egress: *rules}); err != nil {
		return sb.failed(ctx, "set network", missing(sb.ID(), err))
	}
	return nil
}

// UpdateNetworkParams are changes to the network rules of a sandbox. A nil field leaves what is there.
type UpdateNetworkParams struct {
	// AllowOut and DenyOut replace the lists of the same names
	// in [Network]. An empty list that is not nil clears them.
	AllowOut []string
	DenyOut  []string
	// Internet false adds [AllTraffic] to DenyOut, and true takes it out.
	Internet *bool
}

// UpdateNetwork changes some network rules of a running sandbox, no matter which program created
// it, and keeps all others. Services can only replace all rules, so UpdateNetwork reads them first:
// what another program changes at that moment is lost. A proxy with a user name or TLS cannot be
// kept, because services do not return its password: the error is [errors.ErrUnsupported]. If there
// is no such sandbox the error is [ErrGone], with [GonePaused] for one that is paused.
//
// A sandbox that was created without internet access, as by [WithInternet], has it again when
// Internet is true, but only until it is paused.
func (c *Client) UpdateNetwork(ctx context.Context, id string, p *UpdateNetworkParams) error {
	if p == nil {
		p = &UpdateNetworkParams{}
	}
	info, err := c.api.Sandboxes.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("sandbox: update network: %w", missing(id, err))
	}
	rules, err := p.applied(info)
	if err != nil {
		return fmt.Errorf("sandbox: update network: %w", err)
	}
	if err := c.api.Sandboxes.SetNetwork(ctx, id, rules); err != nil {
		return fmt.Errorf("sandbox: update network: %w", c.asleepOrMissing(ctx, id, err))
	}
	return nil
}

// applied returns the rules of a sandbox with the changes.
func (p *UpdateNetworkParams) applied(info *api.SandboxInfo) (*api.NetworkParams, error) {
	rules := &api.NetworkParams{AllowInternetAccess: info.AllowInternetAccess}
	if info.Egress != nil {
		rules.Egress = *info.Egress
	}
	if proxy := rules.EgressProxy; proxy != nil && (proxy.Username != "" || proxy.TLS != nil) {
		return nil, fmt.Errorf("%w: the proxy of its network would lose its password and certificates, which the service does not return; only a program that knows them can set the rules anew", errors.ErrUnsupported)
	}
	if p.AllowOut != nil {
		rules.AllowOut = p.AllowOut
	}
	if p.DenyOut != nil {
		rules.DenyOut = p.DenyOut
	}
	if p.Internet != nil {
		isAll := func(entry string) bool { return entry == AllTraffic }
		rules.AllowInternetAccess = nil
		rules.DenyOut = slices.DeleteFunc(slices.Clone(rules.DenyOut), isAll)
		if !*p.Internet {
			rules.DenyOut = append(rules.DenyOut, AllTraffic)
		}
	}
	return rules, nil
}

// offline reports whether the service says that the sandbox reaches only what its
// rules allow.
func (sb *Sandbox) offline(ctx context.Context) bool {
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return false // it only explains another failure
	}
	return info.AllowInternetAccess != nil && !*info.AllowInternetAccess ||
		info.Egress != nil && slices.Contains(info.Egress.DenyOut, AllTraffic)
}
