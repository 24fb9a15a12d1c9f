package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Policy restricts the addresses that all sandboxes of a cloud can reach. Some addresses can never
// be reached. The zero value allows the internet and private networks. Private networks are allowed
// because companies keep their package mirrors there. [Rules] restrict a single sandbox.
type Policy struct {
	DenyPrivate bool // deny private, shared and unique local addresses
	// NeverPrivate denies private, shared and unique local addresses even to a sandbox whose own rules
	// allow them. It is used together with DenyPrivate.
	NeverPrivate bool
}

// Names of the rules in a [DeniedError].
const (
	ruleLoopback  = "loopback"
	ruleUnspec    = "unspecified address"
	ruleLinkLocal = "link-local"
	ruleMetadata  = "cloud metadata"
	ruleMulticast = "multicast or broadcast"
	ruleOwn       = "an address of this machine"
	rulePrivate   = "private network"
	ruleZone      = "scoped address"
	ruleDenied    = "denied by the sandbox's network rules"
	ruleOff       = "internet access is off for this sandbox"
	ruleNoPeer    = "only names of sandboxes are served here, and the request shows none"
	ruleNumeric   = "a name that ends in a number, which programs read as an address"

	// ruleUnchecked is the rule for names that only a proxy could resolve.
	ruleUnchecked = "the name does not resolve on this machine, so its addresses cannot be checked against the networks that are denied; local.WithProxyNames leaves that to the proxy"
	ruleLocalName = "the name has no dot or is one of localhost, so the proxy of this machine would take it for itself or for its own network"
	ruleProxyHere = "the name does not resolve on this machine, and the proxy that would resolve it runs here too; local.WithProxyNames leaves it to the proxy"
)

// A DeniedError is returned for a connection that a rule denies.
type DeniedError struct {
	Host    string     // as requested
	Address netip.Addr // resolved address; not valid if the name alone decided
	Rule    string     // the rule that denies the connection
	Err     error      // error of the resolver, if Rule is about unknown addresses of Host; otherwise nil
}

func (e *DeniedError) Error() string {
	at := ""
	if e.Address.IsValid() {
		at = " (" + e.Address.String() + ")"
	}
	why := ""
	if e.Err != nil {
		why = ": " + e.Err.Error()
	}
	return fmt.Sprintf("network: %.255s%s is not reachable from a sandbox: %s%s", e.Host, at, e.Rule, why)
}

// Unwrap returns Err.
func (e *DeniedError) Unwrap() error { return e.Err }

// Denied returns true, because the connection was denied and did not fail.
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

	// private lists networks that count as private, in addition to the networks of
	// [netip.Addr.IsPrivate].
	private = []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"),  // shared
		netip.MustParsePrefix("192.0.0.0/24"),   // for protocol assignments
		netip.MustParsePrefix("198.18.0.0/15"),  // for benchmarks
		netip.MustParsePrefix("240.0.0.0/4"),    // reserved, and used inside some clouds
		netip.MustParsePrefix("fec0::/10"),      // site-local
		netip.MustParsePrefix("64:ff9b:1::/48"), // translated by a gateway of the network
	}

	// embeddings lists prefixes of IPv6 addresses whose last four bytes are an IPv4 address. A
	// gateway or the kernel may forward a connection to this IPv4 address.
	embeddings = []netip.Prefix{
		netip.MustParsePrefix("::/96"),
		netip.MustParsePrefix("64:ff9b::/96"),
		netip.MustParsePrefix("64:ff9b:1::/96"),
		netip.MustParsePrefix("::ffff:0:0:0/96"),
	}
	sixToFour = netip.MustParsePrefix("2002::/16") // the IPv4 address is in bytes 2 to 5
)

// NotInternet returns the networks that a Policy with DenyPrivate denies as a whole. It is for an
// engine whose sandboxes have a network of their own. The networks are the private, link-local and
// multicast networks, the networks of metadata services, and the IPv6 networks that lead to IPv4.
// Loopback is not among them.
func NotInternet() []netip.Prefix {
	networks := []netip.Prefix{
		thisNetwork, sixToFour,
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8"),
	}
	networks = append(append(networks, private...), embeddings...)
	for _, address := range metadata {
		networks = append(networks, netip.PrefixFrom(address, address.BitLen()))
	}
	return networks
}

// check returns the rule that denies an address. It returns "" if no rule denies it. named means
// that the sandbox's rules allow the name from which the address was looked up. own contains the
// addresses of this machine. Addresses that are never reachable are checked first. Then the rules
// that allow are checked, first by address and then by name, and finally the rules that deny.
func (p Policy) check(a netip.Addr, rules *Rules, named bool, own []netip.Addr) string {
	if rule := never(a, own); rule != "" {
		return rule
	}
	for _, form := range forms(a) {
		switch {
		case p.NeverPrivate && isPrivate(form):
			return rulePrivate
		case rules.allows(form):
		case p.DenyPrivate && isPrivate(form):
			return rulePrivate
		case named:
		case rules.denies(form):
			return rules.denial()
		}
	}
	return ""
}

// never returns the rule by which no sandbox may reach an address, whatever the sandbox's
// rules. It returns "" if there is no such rule.
func never(a netip.Addr, own []netip.Addr) string {
	if a.Zone() != "" {
		return ruleZone
	}
	for _, form := range forms(a) {
		switch {
		case !form.IsValid(), form.IsUnspecified(), thisNetwork.Contains(form):
			return ruleUnspec
		case form.IsLoopback():
			return ruleLoopback
		case slices.Contains(metadata, form):
			return ruleMetadata
		case form.IsLinkLocalUnicast():
			return ruleLinkLocal
		case form.IsMulticast(), form == broadcast:
			return ruleMulticast
		case slices.Contains(own, form):
			return ruleOwn
		}
	}
	return ""
}

// isHere reports whether an address leads to this machine.
func isHere(a netip.Addr, own []netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsLoopback() || a.IsUnspecified() || slices.Contains(own, a)
}

func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || slices.ContainsFunc(private, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Internal reports whether an address is not one of the internet: whether it is private, leads to
// this machine, its link or a metadata service, or is reserved. An IPv4 address that is embedded in
// an IPv6 address counts as well.
func Internal(a netip.Addr) bool {
	return never(a, nil) != "" || slices.ContainsFunc(forms(a), isPrivate)
}

// forms returns an address without an IPv4-in-IPv6 mapping and, if an IPv4 address is embedded
// in it, also that address.
func forms(a netip.Addr) []netip.Addr {
	a = a.Unmap()
	if v4, ok := embedded(a); ok {
		return []netip.Addr{a, v4}
	}
	return []netip.Addr{a}
}

// embedded returns the IPv4 address that is embedded in an IPv6 address. It returns false if the
// address contains no IPv4 address.
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
