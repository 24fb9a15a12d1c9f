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
	// dialTimeout bounds one connection, its name's resolution included.
	dialTimeout = 30 * time.Second
	// attemptTimeout bounds the try of one of several addresses.
	attemptTimeout = 10 * time.Second
	// maxAddresses bounds how many addresses of a name are tried.
	maxAddresses = 8
	maxHost      = 253
)

// A Resolver looks names up. [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer is how a cloud connects and resolves names for its sandboxes. The zero
// value uses the machine's resolver and the zero policy. It is safe for
// concurrent use.
type Dialer struct {
	Policy   Policy
	Resolver Resolver // nil: net.DefaultResolver
	// Proxy gives the HTTP proxy for connections to a host and port, "host:port"; nil,
	// or nil from it, is none. See [EnvironmentProxy].
	Proxy func(address string) (*url.URL, error)
	// ProxyNames asks the proxy for names as they are, so that it can filter by
	// them. Names that resolve on this machine are checked before; what the proxy
	// connects to is what it resolves itself. False asks it for the address that was
	// checked, and for a name only if that does not resolve here, no network is
	// denied, and the proxy is on another machine.
	ProxyNames bool

	// own gives this machine's addresses; nil asks the machine each time, as
	// they come and go. connect dials; nil: a net.Dialer. Tests replace them.
	own     func() ([]netip.Addr, error)
	connect func(ctx context.Context, d *net.Dialer, address string) (net.Conn, error)
}

// dial connects to a TCP port of a host, which is a name or an address, within
// rules; named says that they allow the name. A *[DeniedError] tells that no
// address of the host may be reached.
func (d *Dialer) dial(ctx context.Context, rules *Rules, named bool, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	proxy, err := d.proxyFor(host, port)
	if err != nil {
		return nil, err
	}
	addresses, unknown := d.resolve(ctx, "ip", host)
	if unknown != nil && proxy == nil {
		return nil, fmt.Errorf("network: %.255q: %w", host, unknown)
	}
	own, err := d.ownAddresses() // after the name, which may take its time
	if err != nil {
		return nil, fmt.Errorf("network: which addresses this machine has: %w", err)
	}
	check := func(a netip.Addr) error {
		if rule := d.Policy.check(a, rules, named, own); rule != "" {
			return &DeniedError{Host: host, Address: a, Rule: rule}
		}
		return nil
	}
	target := net.JoinHostPort(host, strconv.Itoa(int(port)))
	switch {
	// A machine behind a proxy may have no resolver that knows names of the outside.
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
		for _, a := range addresses { // it may take any of them
			if err := check(a); err != nil {
				return nil, err
			}
		}
		return d.throughProxy(ctx, proxy, target, anywhere)
	}
	addresses = addresses[:min(len(addresses), maxAddresses)]
	return firstOf(addresses, check, func(a netip.Addr) (net.Conn, error) {
		to := netip.AddrPortFrom(a.Unmap(), port)
		if proxy != nil {
			return d.addressThroughProxy(ctx, proxy, to, dialTimeout/time.Duration(len(addresses)))
		}
		return d.attempt(ctx, to.String(), check)
	})
}

// firstOf connects to the first of some addresses that passes check and answers.
// There must be at least one.
func firstOf(addresses []netip.Addr, check func(netip.Addr) error, connect func(netip.Addr) (net.Conn, error)) (net.Conn, error) {
	var problems []error // of each address that was tried
	for _, a := range addresses {
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
	// What went wrong with an address that may be reached says more than that
	// another may not.
	for _, err := range problems {
		if _, denied := errors.AsType[*DeniedError](err); !denied {
			return nil, fmt.Errorf("network: %w", err)
		}
	}
	return nil, problems[0]
}

// attempt connects to "host:port". check has the last word: it is asked about the
// address that the kernel is given.
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

// resolve gives the addresses of a host, those of IPv4 first: a machine without a
// way out over IPv6 would let every connection wait for it. network is "ip" or
// "ip4".
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
