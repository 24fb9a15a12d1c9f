package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxRules bounds each list of rules.
const maxRules = 1000

// allTraffic is what denies everything.
const allTraffic = "0.0.0.0/0"

var everything = []netip.Prefix{netip.MustParsePrefix(allTraffic), netip.MustParsePrefix("::/0")}

// Rules are what one sandbox may reach, as its owner says. nil allows all that
// the [Policy] does. They do not change.
type Rules struct {
	allow []netip.Prefix
	names []string // "example.com", "*.example.com" or "*"
	deny  []netip.Prefix
	off   bool // internet access as a whole was turned off
}

// RuleError is a rule that cannot be one.
type RuleError struct {
	List   string // "allowOut" or "denyOut"
	Entry  string
	Reason string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("network: %s has %.100q: %s", e.List, e.Entry, e.Reason)
}

// ParseRules reads rules as the service has them. allow holds addresses, networks
// and names, of which "*.example.com" is every name below example.com and "*" any;
// deny addresses and networks only. Allow beats deny. Without internet everything
// is denied that is not allowed. A rule that cannot be one is a [*RuleError].
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
		if !validPattern(name) {
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

// parseNetwork reads an address or a network. The bare unspecified address is
// neither: it looks like everything, and is nothing.
func parseNetwork(entry string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(entry); err == nil {
		if p.Addr().Is4In6() {
			return netip.Prefix{}, errors.New("an IPv4 network in IPv6 clothes")
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(entry)
	if err != nil {
		return netip.Prefix{}, err
	}
	if a = a.Unmap(); a.IsUnspecified() || a.Zone() != "" {
		return netip.Prefix{}, errors.New("not an address of anything")
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// validPattern tells whether a name, normalized, can be a rule.
func validPattern(name string) bool {
	if name == "*" {
		return true
	}
	name = strings.TrimPrefix(name, "*.")
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	// What looks like an address, and is none, is a slip.
	return validName(name) && !numeric(name)
}

// numeric reports whether a name, normalized, ends in a number, decimal, octal
// or hexadecimal. Many programs, proxies among them, read such a name as an IPv4
// address: "127.1", "2130706433" and "0x7f000001" are 127.0.0.1 to them. No name
// of DNS ends so.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

// validName tells whether a name, normalized, is one of DNS.
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

// normalize gives the one spelling of a name.
func normalize(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// allows tells whether an address is allowed by a rule of its own. A rule for
// everything is not one for private networks.
func (r *Rules) allows(a netip.Addr) bool {
	return r != nil && slices.ContainsFunc(r.allow, func(p netip.Prefix) bool {
		return p.Contains(a) && (!isPrivate(a) || isPrivate(p.Addr()))
	})
}

func (r *Rules) denies(a netip.Addr) bool {
	return r != nil && slices.ContainsFunc(r.deny, func(p netip.Prefix) bool { return p.Contains(a) })
}

// named tells whether a name, normalized, is allowed by name.
func (r *Rules) named(name string) bool {
	return r != nil && slices.ContainsFunc(r.names, func(pattern string) bool {
		suffix, wild := strings.CutPrefix(pattern, "*")
		return name == pattern || wild && (suffix == "" || strings.HasSuffix(name, suffix) && len(name) > len(suffix))
	})
}

// restrict tells whether anything is denied.
func (r *Rules) restrict() bool { return r != nil && len(r.deny) > 0 }

// DenyAll tells whether only what is allowed is reachable.
func (r *Rules) DenyAll() bool { return r != nil && slices.Contains(r.deny, everything[0]) }

// closed tells whether nothing is reachable.
func (r *Rules) closed() bool { return r.DenyAll() && len(r.allow) == 0 && len(r.names) == 0 }

// denial is the rule by which r denies.
func (r *Rules) denial() string {
	if r.off {
		return ruleOff
	}
	return ruleDenied
}
