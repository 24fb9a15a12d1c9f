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

// privateNetworks lists the networks that do not belong to the internet.
var privateNetworks = []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}

// Network lists the destinations that a sandbox may reach. AllowOut takes precedence over
// DenyOut. The zero value leaves the decision to the service. The service never lets a sandbox
// reach the service's own machines.
//
// For connections to port 80 or 443, the service reads the name from the program's data: the
// Host header of HTTP or the server name of TLS. For other ports, allow an address, or let the
// program use the HTTP proxy of its environment. The content of TLS is not inspected, so a
// server with an allowed name may also serve its other names.
type Network struct {
	// AllowOut are addresses, networks such as 203.0.113.0/24, and names: "example.com",
	// "*.example.com" for all names below example.com, and "*" for any name. If AllowOut contains
	// names, DenyOut must contain [AllTraffic]. The local cloud also accepts a result of
	// [Sandbox.Host] of another sandbox, in AllowOut and in Headers.
	AllowOut []string
	// DenyOut are addresses and networks.
	DenyOut []string
	// DNSServers are IPv4 addresses of name servers, at most 10. The sandbox may reach them if
	// AllowOut has names. Names in AllowOut resolve even without DNSServers.
	DNSServers []string
	// DenyPrivate adds the private networks to DenyOut.
	DenyPrivate bool
	// Headers are added to HTTPS requests on port 443, and replace headers of the same name that
	// programs send. The first key is the name of the host ("example.com", or "*.example.com" for all
	// names below example.com). The second key is the name of the header. An entry in Headers does not
	// allow its host: the network rules must allow the host.
	//
	// With [SecretRef], programs use a secret that never enters the sandbox. A host that returns the
	// content of its requests would reveal the secret. The method TRACE makes hosts return the
	// request, so the local cloud sends only GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS to the
	// hosts in Headers.
	//
	// Headers of a sandbox can be changed later only if the sandbox was created with Headers.
	Headers map[string]map[string]string
	// Requests are the only requests that the sandbox may send to a host, by the name of the host as in
	// Headers. They allow the host, for HTTPS on port 443 alone. DenyOut must contain [AllTraffic], and
	// AllowOut must contain neither [AllTraffic] nor "*".
	// Every other request is answered with the status 403, without a connection to the host, and is in
	// the log that [Sandbox.Logs] returns. A server can read one path in several ways: with resolved
	// dots, without doubled slashes, with an encoded slash as a slash, without parameters after a
	// semicolon. A request is sent only if all of these paths are allowed. The content of a request is
	// not checked, so a server that takes another method from it takes that method.
	//
	// An empty list for a host is an error. Only the local cloud checks requests; for other services,
	// the error is [errors.ErrUnsupported]. As with Headers, they can be changed later only if the
	// sandbox was created with Headers or Requests.
	Requests map[string][]RequestRule
	// EgressProxy is the proxy for allowed connections; nil means none. The local cloud sends the
	// proxy the destination's address, which the cloud has checked, or the destination's name if
	// AllowOut contains the name. The network rules must allow the address of the proxy itself.
	EgressProxy *EgressProxy
}

// RequestRule describes requests that a sandbox may send to a host.
type RequestRule struct {
	// Methods are in upper case. GET includes HEAD. Empty means GET, HEAD, POST, PUT, PATCH, DELETE and
	// OPTIONS.
	Methods []string
	// Path is a pattern of the whole path, such as "/simple/**": "*" matches any characters except a
	// slash, and "**" any characters. Empty means every path. Queries are not matched.
	Path string
}

// EgressProxy is a proxy that the connections of a sandbox go through, after the rules of its
// [Network] have allowed them. Programs in the sandbox do not see the proxy. If the proxy fails,
// the connection fails. No connection bypasses the proxy. Programs do not receive the reason for the
// failure. A local cloud writes the reason to the log that [Sandbox.Logs] returns, once for each
// destination. DNS queries do not go through the proxy.
type EgressProxy struct {
	// Address is the host and port of a SOCKS5 proxy, "proxy.example.com:1080". The local cloud
	// also accepts an HTTP proxy, "http://proxy.example.com:8080".
	Address string
	// Username and Password are the login for a proxy that requires one. Each has at most 255 bytes.
	// Services never return the password.
	Username string
	Password Key
	// TLS encrypts the connection to the proxy. Nil means no TLS.
	TLS *EgressProxyTLS
}

// Format writes the fields, and "[redacted]" for a key that is set. Without this method, fmt would
// print the keys if a struct with a pointer to a proxy is formatted with an unsuitable verb such as %s.
func (p EgressProxy) Format(f fmt.State, verb rune) {
	type fields EgressProxy
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), fields(p))
}

// EgressProxyTLS configures TLS to an [EgressProxy]. The proxy's certificate is always verified.
type EgressProxyTLS struct {
	// Enabled turns TLS on. The other fields need it.
	Enabled bool
	// ServerName is the name in the proxy's certificate. The default is the host in the proxy's
	// address.
	ServerName string
	// CACert contains CA certificates in PEM. For this proxy, they replace the certificates that the
	// service trusts. Services never return CACert.
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

// SecretRef returns a placeholder for the value of a secret in [Network].Headers: "Bearer " +
// SecretRef("openai"). See [Secrets].
func SecretRef(name string) string { return "${e2b.secrets." + name + "}" }

func (n Network) wire() api.Egress {
	w := api.Egress{AllowOut: slices.Clone(n.AllowOut), DenyOut: slices.Clone(n.DenyOut), DNSServers: slices.Clone(n.DNSServers), EgressProxy: n.EgressProxy.wire()}
	if n.DenyPrivate {
		w.DenyOut = append(w.DenyOut, privateNetworks...)
	}
	if len(n.Headers)+len(n.Requests) > 0 {
		w.Rules = map[string][]api.NetworkRule{}
	}
	for host, headers := range n.Headers {
		w.Rules[host] = []api.NetworkRule{{Transform: &api.NetworkTransform{Headers: maps.Clone(headers)}}}
	}
	for host, requests := range n.Requests {
		rule := api.NetworkRule{Requests: []api.NetworkRequest{}}
		if with := w.Rules[host]; len(with) > 0 {
			rule.Transform = with[0].Transform
		}
		for _, one := range requests {
			rule.Requests = append(rule.Requests, api.NetworkRequest{Methods: slices.Clone(one.Methods), Path: one.Path})
		}
		w.Rules[host] = []api.NetworkRule{rule}
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

// rules returns the network rules for the service; nil means none.
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

// SetNetwork replaces all network rules of the sandbox: it clears the rules that n does not
// contain, and the effect of [WithInternet]. If this handle has [WithAsk], the service afterwards
// asks about hosts that no rule mentions; otherwise it does not ask. The local cloud also cuts
// existing connections; another service may leave them open.
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

// UpdateNetworkParams contains changes to the network rules of a sandbox. A nil field changes
// nothing.
type UpdateNetworkParams struct {
	// AllowOut and DenyOut replace the lists of the same names
	// in [Network]. An empty list that is not nil clears them.
	AllowOut []string
	DenyOut  []string
	// Internet changes DenyOut: false adds [AllTraffic], and true removes AllTraffic.
	Internet *bool
}

// UpdateNetwork changes some network rules of a running sandbox and keeps all others. Any program
// may have created the sandbox. Services can only replace all rules, so UpdateNetwork first reads
// the present rules. A change that another program makes after this read is lost. UpdateNetwork
// cannot keep a proxy with a user name or with TLS, because services do not return the proxy's
// password: the error is then [errors.ErrUnsupported]. The error is [ErrGone] if there is no such
// sandbox, and [ErrGone] with [GonePaused] if the sandbox is paused.
//
// If a sandbox was created without internet access, for instance with [WithInternet], Internet
// restores the access only until the sandbox is paused.
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

// applied returns the rules of a sandbox with the changes of p.
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

// offline reports whether the sandbox reaches only destinations that its rules allow, as far as
// the service reports it.
func (sb *Sandbox) offline(ctx context.Context) bool {
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return false // the result only explains another failure
	}
	return info.AllowInternetAccess != nil && !*info.AllowInternetAccess ||
		info.Egress != nil && slices.Contains(info.Egress.DenyOut, AllTraffic)
}
