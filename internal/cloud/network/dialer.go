package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	// dialTimeout bounds the time for one connection, including the lookup of the name.
	dialTimeout = 30 * time.Second
	// attemptTimeout bounds the time for connecting to one of several addresses.
	attemptTimeout = 10 * time.Second
	// maxAddresses bounds the number of addresses of a name that are tried.
	maxAddresses = 8
	maxHost      = 253
)

// A Resolver looks up names. [net.Resolver] implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects and looks up names for the sandboxes of a cloud. The zero value uses the
// machine's resolver and the zero policy. It is safe for concurrent use.
type Dialer struct {
	Policy   Policy
	Resolver Resolver // nil: net.DefaultResolver
	// Proxy returns the HTTP proxy for connections to a "host:port". If Proxy is nil or returns
	// nil, there is no proxy. See [EnvironmentProxy].
	Proxy func(address string) (*url.URL, error)
	// ProxyNames passes names to the proxy unchanged, so that the proxy can filter by them. Names that
	// resolve on this machine are checked first, but the proxy resolves them again itself. If
	// ProxyNames is false, the proxy receives the checked address. It then receives a name only if the
	// name does not resolve here, no network is denied, and the proxy is on another machine. A name
	// without a dot, or with localhost in it, is never passed to the proxy.
	ProxyNames bool
	// Unseal opens the sealed password of an egress proxy, and returns the password.
	Unseal func(p *EgressProxy) (string, error)

	// own returns this machine's addresses. If own is nil, the addresses are read from the machine
	// each time, because they may change. connect connects to an address. If connect is nil, a
	// net.Dialer is used. Tests replace both own and connect.
	own     func() ([]netip.Addr, error)
	connect func(ctx context.Context, d *net.Dialer, address string) (net.Conn, error)
}

// dial connects to a TCP port of a host, which is a name or an address, if rules allow it. named
// means that the rules allow the name. If no address of the host may be reached, the error is a
// *[DeniedError].
func (d *Dialer) dial(ctx context.Context, rules *Rules, named bool, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	proxied := rules != nil && rules.proxy != nil
	proxy, err := d.proxyFor(host, port)
	if err != nil {
		return nil, err
	}
	addresses, unknown := d.resolve(ctx, "ip", host)
	if unknown != nil && (proxy == nil || proxied) {
		return nil, fmt.Errorf("network: %.255q: %w", host, unknown)
	}
	own, err := d.ownAddresses() // read after the lookup, which may take a while
	if err != nil {
		return nil, fmt.Errorf("network: list the addresses of this machine: %w", err)
	}
	check := d.checker(rules, named, host, own)
	if proxied {
		return d.throughOwn(ctx, rules, named, host, port, addresses, check)
	}
	target := net.JoinHostPort(host, strconv.Itoa(int(port)))
	_, notLiteral := netip.ParseAddr(host)
	switch {
	case (unknown != nil || d.ProxyNames) && proxy != nil && notLiteral != nil && local(host):
		return nil, &DeniedError{Host: host, Rule: ruleLocalName, Err: unknown}
	// On a machine behind a proxy, the resolver may not know outside names.
	case unknown != nil && !d.ProxyNames:
		if d.Policy.DenyPrivate || rules.restrict() && !named {
			return nil, &DeniedError{Host: host, Rule: ruleUnchecked, Err: unknown}
		}
		return d.throughProxy(ctx, proxy, target, func(a netip.Addr) error {
			if isHere(a, own) {
				return &DeniedError{Host: host, Rule: ruleProxyHere, Err: unknown}
			}
			return nil
		})
	case proxy != nil && d.ProxyNames:
		for _, a := range addresses { // the proxy may use any of the addresses
			if err := check(a); err != nil {
				return nil, err
			}
		}
		return d.throughProxy(ctx, proxy, target, anywhere)
	}
	return firstOf(addresses, check, func(a netip.Addr) (net.Conn, error) {
		to := netip.AddrPortFrom(a.Unmap(), port)
		if proxy != nil {
			return d.addressThroughProxy(ctx, proxy, to, dialTimeout/time.Duration(min(len(addresses), maxAddresses)))
		}
		return d.attempt(ctx, to.String(), check)
	})
}

// checker returns a function that returns an error if an address of the host may not be
// reached.
func (d *Dialer) checker(rules *Rules, named bool, host string, own []netip.Addr) func(netip.Addr) error {
	return func(a netip.Addr) error {
		if rule := d.Policy.check(a, rules, named, own); rule != "" {
			return &DeniedError{Host: host, Address: a, Rule: rule}
		}
		return nil
	}
}

// firstOf connects to the first address that check accepts and that answers. There must be at
// least one address.
func firstOf(addresses []netip.Addr, check func(netip.Addr) error, connect func(netip.Addr) (net.Conn, error)) (net.Conn, error) {
	var problems []error // one for each address that was tried
	for _, a := range addresses[:min(len(addresses), maxAddresses)] {
		if err := check(a); err != nil {
			problems = append(problems, err)
			continue
		}
		conn, err := connect(a)
		if err == nil {
			return conn, nil
		}
		problems = append(problems, err)
	}
	// An error from a permitted address is more useful than the denial of another address.
	for _, err := range problems {
		if _, denied := errors.AsType[*DeniedError](err); !denied {
			return nil, fmt.Errorf("network: %w", err)
		}
	}
	return nil, problems[0]
}

// attempt connects to "host:port". Just before the kernel connects, attempt calls check for the
// address to which the kernel connects.
func (d *Dialer) attempt(ctx context.Context, address string, check func(netip.Addr) error) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout: attemptTimeout,
		Control: func(_, final string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(final)
			if err != nil {
				return err
			}
			return check(a.Addr())
		},
	}
	if d.connect != nil {
		return d.connect(ctx, dialer, address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// resolve returns the addresses of a host, IPv4 first. If IPv6 came first, every connection on a
// machine without IPv6 access to the internet would first wait for an IPv6 attempt to fail. network
// is "ip" or "ip4".
func (d *Dialer) resolve(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	var resolver Resolver = net.DefaultResolver
	if d.Resolver != nil {
		resolver = d.Resolver
	}
	addresses, err := resolver.LookupNetIP(ctx, network, host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("the name has no address")
	}
	slices.SortStableFunc(addresses, func(a, b netip.Addr) int { return a.Unmap().BitLen() - b.Unmap().BitLen() })
	return addresses, err
}

func (d *Dialer) ownAddresses() ([]netip.Addr, error) {
	if d.own != nil {
		return d.own()
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := make([]netip.Addr, 0, len(interfaces))
	for _, i := range interfaces {
		if n, ok := i.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, a.Unmap())
			}
		}
	}
	return own, nil
}
