package network

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/proxy"
)

// EgressProxy is the requested proxy for those connections of one sandbox that leave this
// machine. Its field names are part of the stored format.
type EgressProxy struct {
	Address  string // "host:port" of a SOCKS5 proxy, or "http://host:port" of an HTTP proxy
	Username string `json:",omitempty"`
	Sealed   []byte `json:",omitempty"` // sealed password, which [Dialer.Unseal] opens; empty: none
	TLS      bool   `json:",omitempty"` // the connection to the proxy uses TLS
	// ServerName is the name in the proxy's certificate. "" means the host of Address.
	ServerName string `json:",omitempty"`
	// CACert contains the PEM certificates with which the proxy's certificate is verified. "" means
	// this machine's certificates.
	CACert string `json:",omitempty"`
}

// SealedUnder returns the value to which Sealed, the sealed password, is bound. This value
// identifies the proxy that may receive the password.
func (p *EgressProxy) SealedUnder() string {
	return fmt.Sprintf("egressProxy %q %q %v %q %q", p.Address, p.Username, p.TLS, p.ServerName, p.CACert)
}

// Bounds of an egress proxy.
const (
	maxCredential = 255 // in SOCKS5, the length of a credential has one byte
	maxCACert     = 8 << 10
)

// egressProxy is an EgressProxy after validation.
type egressProxy struct {
	EgressProxy
	http  bool
	host  string
	port  uint16
	roots *x509.CertPool // nil: this machine's roots
}

// WithProxy returns the same rules with a proxy for the connections that they allow. If asked is
// nil, there is no proxy. If the proxy is invalid, the error is a [*RuleError]. This error does not
// contain text that may be a password.
func (r *Rules) WithProxy(asked *EgressProxy) (*Rules, error) {
	if asked == nil {
		return r, nil
	}
	p, reason := parseProxy(asked)
	if reason != "" {
		entry := asked.Address
		if last := strings.LastIndexByte(entry, '@'); last >= 0 { // a password may contain an @, too
			entry = "…" + entry[last:]
		}
		return nil, &RuleError{"egressProxy", entry, reason}
	}
	var with Rules
	if r != nil {
		with = *r
	}
	with.proxy = p
	return &with, nil
}

// parseProxy returns the validated proxy. If asked is not valid, parseProxy returns a description
// of the error.
func parseProxy(asked *EgressProxy) (*egressProxy, string) {
	p := &egressProxy{EgressProxy: *asked}
	var address string
	address, p.http = strings.CutPrefix(asked.Address, "http://")
	var err error
	p.host, p.port, err = split(address)
	_, notLiteral := netip.ParseAddr(p.host)
	name := normalize(p.host)
	switch {
	case err != nil || p.port == 0 || notLiteral != nil && (!validName(name) || numeric(name)):
		return nil, "the address must be host:port of a SOCKS5 proxy, or http://host:port of an HTTP proxy; a user and a password have fields of their own"
	case len(asked.Username) > maxCredential:
		return nil, fmt.Sprintf("the username has more than %d bytes", maxCredential)
	case len(asked.Sealed) > 0 && asked.Username == "":
		return nil, "a password needs a username"
	case !asked.TLS && (asked.ServerName != "" || asked.CACert != ""):
		return nil, "tls has serverName or caCert, and enabled is false"
	case len(asked.ServerName) > maxHost || len(asked.CACert) > maxCACert:
		return nil, fmt.Sprintf("tls.serverName has at most %d characters, and tls.caCert %d bytes", maxHost, maxCACert)
	}
	if asked.CACert != "" {
		p.roots = x509.NewCertPool()
		if !p.roots.AppendCertsFromPEM([]byte(asked.CACert)) {
			return nil, "tls.caCert has no certificate in PEM"
		}
	}
	return p, ""
}

// forProxy returns the rules for the connection to the proxy itself. The rule about all traffic
// does not apply, because no program of the sandbox requests this connection.
func (r *Rules) forProxy() *Rules {
	direct := r.lifted()
	direct.proxy = nil
	return direct
}

// CheckProxy returns an error if the proxy of rules cannot be looked up or may not be reached.
func (d *Dialer) CheckProxy(ctx context.Context, rules *Rules) error {
	if rules == nil || rules.proxy == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	addresses, err := d.resolve(ctx, "ip", rules.proxy.host)
	if err != nil && d.Proxy != nil { // the machine's own proxy may know the name
		return nil
	}
	if err != nil {
		return fmt.Errorf("network: %.255q: %w", rules.proxy.host, err)
	}
	own, err := d.ownAddresses()
	if err != nil {
		return fmt.Errorf("network: list the addresses of this machine: %w", err)
	}
	_, err = firstOf(addresses, d.checker(rules.forProxy(), false, rules.proxy.host, own), func(netip.Addr) (net.Conn, error) { return nil, nil })
	return err
}

// egressProxyError reports that a connection through the proxy of a sandbox failed.
type egressProxyError struct {
	target, proxy string // addresses of the target and of the proxy
	err           error
}

func (e *egressProxyError) Error() string {
	return fmt.Sprintf("connect to %.255s through the egressProxy %.300s of the sandbox: %.1000v", e.target, e.proxy, e.err) // the proxy may have written part of the text
}

func (e *egressProxyError) Unwrap() error { return e.err }

// throughEgressProxy connects to target through the egress proxy of rules. The target must have
// been checked.
func (d *Dialer) throughEgressProxy(ctx context.Context, rules *Rules, target string) (_ net.Conn, err error) {
	p := rules.proxy
	defer func() {
		if err != nil {
			err = &egressProxyError{target, p.Address, err}
		}
	}()
	password := ""
	if len(p.Sealed) > 0 {
		if password, err = d.Unseal(&p.EgressProxy); err != nil {
			return nil, fmt.Errorf("its password: %w", err)
		}
	}
	conn, err := d.dialEgressProxy(ctx, rules)
	if err != nil {
		return nil, err
	}
	if err := p.ask(ctx, conn, target, password); err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("it does not answer: %w", context.Cause(ctx))
		}
		return nil, err
	}
	return conn, nil
}

// dialEgressProxy connects to the egress proxy, with TLS if it is requested.
func (d *Dialer) dialEgressProxy(ctx context.Context, rules *Rules) (net.Conn, error) {
	p := rules.proxy
	conn, err := d.dial(ctx, rules.forProxy(), false, p.host, p.port)
	if err != nil || !p.TLS {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: cmp.Or(p.ServerName, p.host), RootCAs: p.roots, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// ask requests a connection to the target from the proxy at the other end of conn.
func (p *egressProxy) ask(ctx context.Context, conn net.Conn, target, password string) error {
	if p.http {
		var user *url.Userinfo
		if p.Username != "" {
			user = url.UserPassword(p.Username, password)
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		err := askHTTP(conn, target, user)
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		return err
	}
	var auth *proxy.Auth
	if p.Username != "" {
		auth = &proxy.Auth{User: p.Username, Password: password}
	}
	dialer, err := proxy.SOCKS5("tcp", p.Address, auth, connected{conn})
	if err != nil {
		return err
	}
	socks, ok := dialer.(proxy.ContextDialer)
	if !ok {
		return errors.ErrUnsupported
	}
	// The result is dropped, because it hides that the directions of conn can end separately.
	_, err = socks.DialContext(ctx, "tcp", target)
	return err
}

// connected is a dialer that returns an existing connection.
type connected struct{ conn net.Conn }

func (c connected) Dial(string, string) (net.Conn, error) { return c.conn, nil }

func (c connected) DialContext(context.Context, string, string) (net.Conn, error) {
	return c.conn, nil
}

// throughOwn connects to a host through the egress proxy of rules. The proxy receives a name
// only if the rules allow the name and all addresses of the name may be reached. Otherwise it
// receives an allowed address.
func (d *Dialer) throughOwn(ctx context.Context, rules *Rules, named bool, host string, port uint16, addresses []netip.Addr, check func(netip.Addr) error) (net.Conn, error) {
	portText := strconv.Itoa(int(port))
	if _, err := netip.ParseAddr(host); err == nil || !named {
		return firstOf(addresses, check, func(a netip.Addr) (net.Conn, error) {
			return d.throughEgressProxy(ctx, rules, net.JoinHostPort(a.Unmap().String(), portText))
		})
	}
	if local(host) {
		return nil, &DeniedError{Host: host, Rule: ruleLocalName}
	}
	for _, a := range addresses { // the proxy may use any of the addresses
		if err := check(a); err != nil {
			return nil, err
		}
	}
	return d.throughEgressProxy(ctx, rules, net.JoinHostPort(normalize(host), portText))
}
