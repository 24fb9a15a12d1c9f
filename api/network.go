package api

import (
	"context"
	"fmt"
	"net/http"
)

// AllTraffic in [Egress].DenyOut denies everything that AllowOut does not list.
const AllTraffic = "0.0.0.0/0"

// Egress lists the destinations that a sandbox may reach. AllowOut takes precedence over
// DenyOut.
type Egress struct {
	// AllowOut lists addresses, networks such as 10.0.0.0/8, and names:
	// "example.com", "*.example.com" for all names below it, "*" for any. Names
	// require [AllTraffic] in DenyOut.
	AllowOut []string `json:"allowOut,omitempty"`
	// DenyOut lists addresses and networks.
	DenyOut []string `json:"denyOut,omitempty"`
	// DNSServers lists IPv4 addresses of name servers, at most 10. The sandbox may reach them
	// if AllowOut has names. Names in AllowOut resolve even without DNSServers.
	DNSServers []string `json:"dnsServers,omitempty"`
	// Rules change the HTTPS requests to a host. The key is the host's name: "example.com", or
	// "*.example.com" for all names below it. A rule alone does not allow the sandbox to reach the
	// host. Each host has at most one rule.
	Rules map[string][]NetworkRule `json:"rules,omitempty"`
	// EgressProxy is the proxy through which connections leave. Nil means no proxy.
	EgressProxy *EgressProxyConfig `json:"egressProxy,omitempty"`
	// Ask makes the service ask before a sandbox reaches a host that only [AllTraffic] in
	// DenyOut denies; see [SandboxService.Questions]. It needs AllTraffic in DenyOut. Only the
	// local cloud can ask. With another service, a call that sets Ask does nothing and returns
	// [errors.ErrUnsupported].
	Ask bool `json:"ask,omitempty"`
}

// EgressProxyConfig is a proxy that the connections of a sandbox go through, after the rules of its
// [Egress] have allowed them. Programs in the sandbox do not notice the proxy. If the proxy fails,
// the connection fails: no connection bypasses the proxy. DNS queries do not go through it.
type EgressProxyConfig struct {
	// Address is the host and port of a SOCKS5 proxy, "proxy.example.com:1080". The local
	// cloud also takes an HTTP proxy, "http://proxy.example.com:8080".
	Address string `json:"address"`
	// Username and Password log in to the proxy, if it requires that. Each has at most 255
	// bytes. Services never return the password, and it prints as "[redacted]".
	Username string `json:"username,omitempty"`
	Password Key    `json:"password,omitempty"`
	// TLS encrypts the connection to the proxy. Nil means no TLS.
	TLS *EgressProxyTLS `json:"tls,omitempty"`
}

// Format writes the fields, and "[redacted]" for a key that is set. Without this method, fmt would
// print the keys if a struct with a pointer to a proxy is formatted with an unsuitable verb such as %s.
func (p EgressProxyConfig) Format(f fmt.State, verb rune) {
	type fields EgressProxyConfig
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), fields(p))
}

// EgressProxyTLS configures TLS to a proxy. The proxy's certificate is always verified.
type EgressProxyTLS struct {
	// Enabled turns TLS on. The other fields require Enabled.
	Enabled bool `json:"enabled"`
	// ServerName is the name in the proxy's certificate. The default is the host of its address.
	ServerName string `json:"serverName,omitempty"`
	// CACert contains CA certificates in PEM that replace the service's trusted ones for this
	// proxy. Services never return them.
	CACert string `json:"caCert,omitempty"`
}

// NetworkRule changes requests on their way out of a sandbox, and refuses others.
type NetworkRule struct {
	Transform *NetworkTransform `json:"transform,omitempty"`
	// Requests are the only requests that the host receives, through HTTPS on port 443. They allow the
	// host, and need [AllTraffic] in DenyOut. Nil means every request to a host that is allowed; an
	// empty list is an error. Only the local cloud checks requests. With another service, a call that
	// sets Requests does nothing and returns [errors.ErrUnsupported].
	Requests []NetworkRequest `json:"requests,omitzero"`
}

// NetworkRequest describes requests that a sandbox may send to a host.
type NetworkRequest struct {
	// Methods are in upper case. GET includes HEAD. Empty means every method that a rule permits: GET,
	// HEAD, POST, PUT, PATCH, DELETE and OPTIONS.
	Methods []string `json:"methods,omitempty"`
	// Path is a pattern of the whole path: "*" matches any characters except a slash, and "**" any
	// characters. Empty means every path. Queries are not matched.
	Path string `json:"path,omitempty"`
}

// NetworkTransform changes a request.
type NetworkTransform struct {
	// Headers replace headers of the request with the same name. In the values,
	// ${e2b.secrets.NAME} stands for the value of a secret, which never enters the sandbox.
	Headers map[string]string `json:"headers,omitempty"`
}

// NetworkParams replaces the network rules of a running sandbox. The zero value
// allows everything that the service allows.
type NetworkParams struct {
	Egress
	// AllowInternetAccess allows access to the internet; nil means the service's default, true.
	AllowInternetAccess *bool
}

type networkRequest struct {
	egressRequest
	AllowInternetAccess *bool `json:"allow_internet_access,omitempty"`
}

// egressRequest is an [Egress] in the form of a request. It contains the proxy's password as a
// plain string, because a [Key] would be encoded as "[redacted]".
type egressRequest struct {
	Egress
	EgressProxy *egressProxyRequest `json:"egressProxy,omitempty"`
}

type egressProxyRequest struct {
	EgressProxyConfig
	Password string `json:"password,omitempty"`
}

func (e Egress) request() egressRequest {
	r := egressRequest{Egress: e}
	if e.EgressProxy != nil {
		r.EgressProxy = &egressProxyRequest{*e.EgressProxy, string(e.EgressProxy.Password)}
	}
	return r
}

// createNetwork is the network part of a create request: which destinations the sandbox may
// reach, and how clients reach the sandbox.
type createNetwork struct {
	egressRequest
	AllowPublicTraffic *bool  `json:"allowPublicTraffic,omitempty"`
	HTTPSPorts         []int  `json:"httpsPorts,omitempty"`
	MaskRequestHost    string `json:"maskRequestHost,omitempty"`
}

// network returns nil when p sets nothing about the network.
func (p *CreateParams) network() *createNetwork {
	if p.Egress == nil && !p.PrivateTraffic && len(p.HTTPSPorts) == 0 && p.RequestHost == "" {
		return nil
	}
	n := &createNetwork{HTTPSPorts: p.HTTPSPorts, MaskRequestHost: p.RequestHost}
	if p.Egress != nil {
		n.egressRequest = p.Egress.request()
	}
	if p.PrivateTraffic {
		n.AllowPublicTraffic = new(bool)
	}
	return n
}

// SetNetwork replaces all network rules of a running sandbox: rules that p leaves out are cleared.
// Open connections may stay open or be cut. The error is [ErrNotFound] when the sandbox is not
// running.
func (s *SandboxService) SetNetwork(ctx context.Context, id string, p *NetworkParams) error {
	path, err := sandboxPath(id, "/network")
	if err != nil {
		return err
	}
	if p == nil {
		p = &NetworkParams{}
	}
	if err := s.canServe(ctx, &p.Egress); err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodPut, path: path, body: networkRequest{p.request(), p.AllowInternetAccess}}, nil)
	return err
}
