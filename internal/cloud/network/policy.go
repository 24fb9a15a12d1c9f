package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Policy says what a sandbox may reach besides what no sandbox ever may. The
// zero value allows the internet and private networks, which companies keep
// their package mirrors in.
type Policy struct {
	DenyPrivate bool // refuse private, shared and unique local addresses
}

// Rules, as [DeniedError] names them.
const (
	ruleLoopback  = "loopback"
	ruleUnspec    = "unspecified address"
	ruleLinkLocal = "link-local"
	ruleMetadata  = "cloud metadata"
	ruleMulticast = "multicast or broadcast"
	ruleOwn       = "an address of this machine"
	rulePrivate   = "private network"
	ruleZone      = "scoped address"
)

// A DeniedError is a connection that the policy forbids.
type DeniedError struct {
	Host    string     // as it was asked for
	Address netip.Addr // what it resolved to
	Rule    string     // which rule forbids it
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("network: %.255s (%s) is not reachable from a sandbox: %s", e.Host, e.Address, e.Rule)
}

// Denied tells that the connection was forbidden, not that it failed.
func (e *DeniedError) Denied() bool { return true }

var (
	metadata = []netip.Addr{
		netip.MustParseAddr("169.254.169.254"),
		netip.MustParseAddr("100.100.100.200"),
		netip.MustParseAddr("168.63.129.16"),
		netip.MustParseAddr("192.0.0.192"),
		netip.MustParseAddr("fd00:ec2::254"),
		netip.MustParseAddr("fd20:ce::254"),
		netip.MustParseAddr("fd00:42::42"),
	}
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	broadcast   = netip.MustParseAddr("255.255.255.255")

	// What is private besides what [netip.Addr.IsPrivate] says.
	private = []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"),  // shared
		netip.MustParsePrefix("192.0.0.0/24"),   // of protocols
		netip.MustParsePrefix("198.18.0.0/15"),  // of benchmarks
		netip.MustParsePrefix("240.0.0.0/4"),    // reserved, and used inside some clouds
		netip.MustParsePrefix("fec0::/10"),      // site-local
		netip.MustParsePrefix("64:ff9b:1::/48"), // translated by the network's own gateway
	}

	// Prefixes whose last four bytes are an IPv4 address that a gateway, or the
	// kernel, would carry the connection to.
	embeddings = []netip.Prefix{
		netip.MustParsePrefix("::/96"),
		netip.MustParsePrefix("64:ff9b::/96"),
		netip.MustParsePrefix("64:ff9b:1::/96"),
		netip.MustParsePrefix("::ffff:0:0:0/96"),
	}
	sixToFour = netip.MustParsePrefix("2002::/16") // the IPv4 address is in bytes 2 to 5
)

// check gives the rule that forbids an address, "" when none does. own are the
// addresses of this machine.
func (p Policy) check(a netip.Addr, own []netip.Addr) string {
	if a.Zone() != "" {
		return ruleZone
	}
	a = a.Unmap()
	if rule := p.checkOne(a, own); rule != "" {
		return rule
	}
	if v4, ok := embedded(a); ok {
		return p.checkOne(v4, own)
	}
	return ""
}

func (p Policy) checkOne(a netip.Addr, own []netip.Addr) string {
	switch {
	case !a.IsValid(), a.IsUnspecified(), thisNetwork.Contains(a):
		return ruleUnspec
	case a.IsLoopback():
		return ruleLoopback
	case slices.Contains(metadata, a):
		return ruleMetadata
	case a.IsLinkLocalUnicast():
		return ruleLinkLocal
	case a.IsMulticast(), a == broadcast:
		return ruleMulticast
	case slices.Contains(own, a):
		return ruleOwn
	case p.DenyPrivate && (a.IsPrivate() || slices.ContainsFunc(private, func(n netip.Prefix) bool { return n.Contains(a) })):
		return rulePrivate
	}
	return ""
}

// embedded gives the IPv4 address inside an IPv6 one.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	if sixToFour.Contains(a) {
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	if slices.ContainsFunc(embeddings, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return netip.AddrFrom4([4]byte(b[12:])), true
	}
	return netip.Addr{}, false
}
