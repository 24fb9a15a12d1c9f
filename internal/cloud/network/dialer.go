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

	// own gives this machine's addresses; nil asks the machine each time, as
	// they come and go. connect dials; nil: a net.Dialer. Tests replace them.
	own     func() ([]netip.Addr, error)
	connect func(ctx context.Context, d *net.Dialer, address netip.AddrPort) (net.Conn, error)
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
	addresses, err := d.resolve(ctx, "ip", host)
	// A machine behind a proxy may have nobody to resolve names of the outside.
	if err != nil && proxy == nil {
		return nil, fmt.Errorf("network: %.255q: %w", host, err)
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
	if proxy != nil {
		for _, a := range addresses { // it may take any of them
			if err := check(a); err != nil {
				return nil, err
			}
		}
		return throughProxy(ctx, proxy, net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	var problems []error // of each address that was tried: there is at least one
	for _, a := range addresses[:min(len(addresses), maxAddresses)] {
		if err := check(a); err != nil {
			problems = append(problems, err)
			continue
		}
		conn, err := d.attempt(ctx, netip.AddrPortFrom(a.Unmap(), port), check)
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

func (d *Dialer) attempt(ctx context.Context, address netip.AddrPort, check func(netip.Addr) error) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout: attemptTimeout,
		// The last word is about the address the kernel is given.
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
	return dialer.DialContext(ctx, "tcp", address.String())
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
