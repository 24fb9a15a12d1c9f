package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxRules bounds the length of each list of rules.
const maxRules = 1000

// allTraffic is the entry that denies all traffic.
const allTraffic = "0.0.0.0/0"

var everything = []netip.Prefix{netip.MustParsePrefix(allTraffic), netip.MustParsePrefix("::/0")}

// Rules are the restrictions that the owner of a sandbox sets for the connections of the sandbox.
// A nil Rules allows everything that the [Policy] allows. Rules are immutable.
type Rules struct {
	allow []netip.Prefix
	names []string // "example.com", "*.example.com" or "*"
	deny  []netip.Prefix
	off   bool // internet access was turned off
	asks  bool // a program is asked about hosts that only the rule about all traffic denies

	headers  headerRules
	requests map[string][]request // by host, as headerRules: the only requests that the host receives
	proxy    *egressProxy         // nil: this machine makes the connections
}

// RuleError describes an invalid rule.
type RuleError struct {
	List   string // "allowOut", "denyOut", "dnsServers", "rules", "egressProxy" or "ask"
	Entry  string
	Reason string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("network: %s has %.100q: %s", e.List, e.Entry, e.Reason)
}

// ParseRules parses rules in the service's form. allow contains addresses, networks and names.
// The name "*.example.com" means every name below example.com, and "*" means any name. deny
// contains only addresses and networks. allow has precedence over deny. If internet is false,
// everything that is not allowed is denied. If a rule is invalid, the error is a [*RuleError].
func ParseRules(internet bool, allow, deny []string) (*Rules, error) {
	r := &Rules{off: !internet}
	for list, entries := range map[string][]string{"allowOut": allow, "denyOut": deny} {
		if len(entries) > maxRules {
			return nil, &RuleError{list, entries[maxRules], fmt.Sprintf("more than %d entries", maxRules)}
		}
	}
	for _, entry := range deny {
		p, err := parseNetwork(entry)
		if err != nil {
			return nil, &RuleError{"denyOut", entry, "want an address or a network such as 10.0.0.0/8; to deny names, deny " + allTraffic + " and allow others"}
		}
		if p == everything[0] {
			r.deny = append(r.deny, everything...)
			continue
		}
		r.deny = append(r.deny, p)
	}
	all := slices.Contains(r.deny, everything[0])
	for _, entry := range allow {
		if p, err := parseNetwork(entry); err == nil {
			r.allow = append(r.allow, p)
			continue
		}
		name := normalize(entry)
		if !validPattern(name) && !peerEntry(name) {
			return nil, &RuleError{"allowOut", entry, "want an address, a network such as 10.0.0.0/8, or a name such as example.com or *.example.com"}
		}
		if !all {
			return nil, &RuleError{"allowOut", entry, "a name needs denyOut to have " + allTraffic + ": deny all traffic first"}
		}
		r.names = append(r.names, name)
	}
	if r.off && !all {
		r.deny = append(r.deny, everything...)
	}
	return r, nil
}

// maxNameServers bounds the number of a sandbox's name servers.
const maxNameServers = 10

// AllowNameServers adds name servers to allow, a list for [ParseRules] of allowed addresses,
// networks and names. If allow contains a name, the result is allow with servers added, so that all
// traffic to the name servers is allowed. Otherwise the result is allow. Name servers are IPv4
// addresses. Programs can look up names even if no name server is allowed. If a name server is
// invalid, the error is a [*RuleError].
func AllowNameServers(allow, servers []string) ([]string, error) {
	for i, server := range servers {
		if a, err := netip.ParseAddr(server); err != nil || !a.Is4() || a.IsUnspecified() || i >= maxNameServers {
			return nil, &RuleError{"dnsServers", server, fmt.Sprintf("want at most %d IPv4 addresses", maxNameServers)}
		}
	}
	if !slices.ContainsFunc(allow, func(entry string) bool { _, err := parseNetwork(entry); return err != nil }) {
		return allow, nil
	}
	return slices.Concat(allow, servers), nil
}

// parseNetwork parses an address or a network. It refuses the unspecified address: this address
// looks as if it meant all addresses, but it has no meaning in a rule.
func parseNetwork(entry string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(entry); err == nil {
		if p.Addr().Is4In6() {
			return netip.Prefix{}, errors.New("an IPv4 network that is written as IPv6")
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(entry)
	if err != nil {
		return netip.Prefix{}, err
	}
	if a = a.Unmap(); a.IsUnspecified() || a.Zone() != "" {
		return netip.Prefix{}, errors.New("not an address that a host can have")
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// validPattern reports whether a normalized name can be a rule.
func validPattern(name string) bool {
	if name == "*" {
		return true
	}
	name = strings.TrimPrefix(name, "*.")
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	// A name that looks like an address but is not one is a mistake.
	return validName(name) && !numeric(name)
}

// numeric reports whether a normalized name ends in a decimal, octal or hexadecimal number.
// Many programs, including proxies, read such a name as an IPv4 address: for them, "127.1",
// "2130706433" and "0x7f000001" are 127.0.0.1. No DNS name ends in a number.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

// local reports whether a name means the machine that resolves it, or a host in that machine's
// network. It returns true for a name without a dot, or with localhost or localdomain in it,
// such as localhost.localdomain, localhost4.example or db.localhost.
func local(name string) bool {
	labels := strings.Split(normalize(name), ".")
	return len(labels) == 1 || slices.ContainsFunc(labels, func(label string) bool {
		return slices.Contains([]string{"localhost", "localdomain"}, strings.TrimRight(label, "46"))
	})
}

// validName reports whether a normalized name is a valid DNS name.
func validName(name string) bool {
	if name == "" || len(name) > maxHost {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// normalize returns a host name in lower case, without a final dot.
func normalize(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// allows reports whether a rule about addresses allows an address. A rule that allows
// everything does not allow private networks.
func (r *Rules) allows(a netip.Addr) bool {
	return r != nil && slices.ContainsFunc(r.allow, func(p netip.Prefix) bool {
		return p.Contains(a) && (!isPrivate(a) || isPrivate(p.Addr()))
	})
}

func (r *Rules) denies(a netip.Addr) bool {
	return r != nil && slices.ContainsFunc(r.deny, func(p netip.Prefix) bool { return p.Contains(a) })
}

// named reports whether a rule about names or requests allows a normalized name.
func (r *Rules) named(name string) bool {
	return r.Limited(name) || r != nil && slices.ContainsFunc(r.names, func(pattern string) bool {
		suffix, wild := strings.CutPrefix(pattern, "*")
		return name == pattern || wild && (suffix == "" || strings.HasSuffix(name, suffix) && len(name) > len(suffix))
	})
}

// restrict reports whether the rules deny any address.
func (r *Rules) restrict() bool { return r != nil && len(r.deny) > 0 }

// DenyAll reports whether only explicitly allowed hosts can be reached.
func (r *Rules) DenyAll() bool { return r != nil && slices.Contains(r.deny, everything[0]) }

// Partial reports whether the rules do more than allow or deny everything: they treat hosts
// differently, or determine how connections are made.
func (r *Rules) Partial() bool {
	if r == nil || r.closed() {
		return false
	}
	return len(r.allow)+len(r.names)+len(r.deny) > 0 || r.asks || r.proxy != nil
}

// closed reports whether no host can be reached.
func (r *Rules) closed() bool {
	return r.DenyAll() && !r.asks && len(r.allow) == 0 && len(r.names) == 0 && len(r.requests) == 0
}

// WithAsking returns a copy of r in which a program is asked about hosts that only the rule about
// all traffic denies. If r has no rule about all traffic, the error is a [*RuleError].
func (r *Rules) WithAsking() (*Rules, error) {
	if !r.DenyAll() {
		return nil, &RuleError{"ask", "true", "it needs denyOut to have " + allTraffic + ": questions are only about hosts that nothing else denies"}
	}
	with := *r
	with.asks = true
	return &with, nil
}

// AskingOtherwise returns rules that allow the hosts that r names, and require a question about all
// other hosts that r allows. If r denies all traffic, AskingOtherwise returns r, because the owner
// of the rules has already decided about other hosts.
func (r *Rules) AskingOtherwise() *Rules {
	if r.DenyAll() {
		return r
	}
	var with Rules
	if r != nil {
		with = *r
	}
	with.deny = slices.Concat(with.deny, everything)
	with.asks = true
	return &with
}

// Asks reports whether a program is asked about hosts.
func (r *Rules) Asks() bool { return r != nil && r.asks }

// lifted returns a copy of r without the rule about all traffic.
func (r *Rules) lifted() *Rules {
	lifted := *r
	lifted.off = false
	lifted.deny = slices.DeleteFunc(slices.Clone(r.deny), func(p netip.Prefix) bool { return slices.Contains(everything, p) })
	return &lifted
}

// denial returns the name of the rule with which r denies addresses.
func (r *Rules) denial() string {
	if r.off {
		return ruleOff
	}
	return ruleDenied
}
