package network

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Peers connects to sandboxes by the same names that clients outside of sandboxes use, such as
// 8080-i1a2b3.localhost. Outside of sandboxes, these names resolve to the address on which the
// cloud listens. A sandbox has its own loopback interface, so it cannot reach the cloud at that
// address. Instead, a [Relay] listens at that address inside the sandbox.
type Peers struct {
	Port uint16                 // port on which the cloud serves all names
	Is   func(host string) bool // reports whether a normalized name is the name of a sandbox's port
	// Serve answers the requests on a connection to a name. It adds headers to each request. It
	// owns the connection.
	Serve func(conn net.Conn, name string, headers []Header)
}

// peer reports whether a name leads to a sandbox.
func (e *Egress) peer(host string) bool { return e.Peers != nil && e.Peers.Is(normalize(host)) }

// permitPeer returns a *[DeniedError] if the rules deny a sandbox's name. Of the rules about
// addresses, only the rule about all traffic applies, because the connection has no address.
func (e *Egress) permitPeer(ctx context.Context, host string) error {
	if e.Rules.named(withPort(normalize(host), e.Peers.Port)) {
		return nil
	}
	_, _, err := e.permitName(ctx, host, e.Peers.Port)
	return err
}

// dialPeer connects to a sandbox by name.
func (e *Egress) dialPeer(ctx context.Context, host string) (net.Conn, error) {
	if err := e.permitPeer(ctx, host); err != nil {
		return nil, e.noted(err, e.Peers.Port)
	}
	name := normalize(host)
	_, near, far := newDuplex(ctx)
	headers, ok := e.Rules.headersAt(withPort(name, e.Peers.Port))
	if !ok {
		headers = e.Rules.Headers(name)
	}
	e.Peers.Serve(far, name, headers)
	return near, nil
}

// headersAt returns the headers of the rule for a name with a port.
func (r *Rules) headersAt(address string) ([]Header, bool) {
	if r == nil {
		return nil, false
	}
	headers, ok := r.headers[address]
	return headers, ok
}

// relayAddress is the address of the relay inside a sandbox. The names of sandboxes resolve to this
// address. The relay forwards the connections.
var relayAddress = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func withPort(name string, port uint16) string {
	return net.JoinHostPort(name, strconv.Itoa(int(port)))
}

// peerEntry reports whether a normalized entry of a rule is the name of a sandbox's port together
// with the port of the cloud, such as 8080-i1a2b3.localhost:49160. Clients use such names with the
// port. Entries for other hosts have no port.
func peerEntry(entry string) bool {
	name, _, err := split(entry)
	if err != nil || !validName(name) || numeric(name) {
		return false
	}
	label, _, below := strings.Cut(name, ".")
	port, id, dashed := strings.Cut(label, "-")
	return below && dashed && id != "" && port != "" && strings.Trim(port, "0123456789") == ""
}
