package network

import (
	"net/netip"
	"slices"
	"testing"
)

// TestNotInternet checks that the list has the networks that a policy denies, by their edges: both ends of
// each are denied by a policy.
func TestNotInternet(t *testing.T) {
	t.Parallel()
	all := NotInternet()
	p := Policy{DenyPrivate: true}
	for _, prefix := range all {
		for _, a := range []netip.Addr{prefix.Masked().Addr(), lastOf(prefix)} {
			if p.check(a, nil, false, nil) == "" {
				t.Errorf("%v of %v is not denied by a policy", a, prefix)
			}
		}
	}
	for _, tt := range []struct{ before, first, last, after string }{
		{"", "0.0.0.0", "0.255.255.255", "1.0.0.0"},
		{"9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"},
		{"100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"},
		{"168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17"},
		{"169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"},
		{"172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"},
		{"191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"},
		{"192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"},
		{"198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"},
		{"223.255.255.255", "224.0.0.0", "239.255.255.255", ""},
		{"", "240.0.0.0", "255.255.255.255", ""},
		{"", "::", "::ffff:ffff", "::1:0:0"},
		{"::fffe:ffff:ffff:ffff", "::ffff:0:0:0", "::ffff:0:ffff:ffff", "::ffff:1:0:0"},
		{"64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", "64:ff9b::", "64:ff9b::ffff:ffff", "64:ff9b::1:0:0"},
		{"64:ff9b:0:ffff:ffff:ffff:ffff:ffff", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "64:ff9b:2::"},
		{"2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"},
		{"fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe00::"},
		{"fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		{"", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		{"", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
	} {
		for text, want := range map[string]bool{tt.before: false, tt.first: true, tt.last: true, tt.after: false} {
			if text == "" { // nothing is there, or another of the networks
				continue
			}
			a := netip.MustParseAddr(text)
			if got := slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) }); got != want {
				t.Errorf("%v is in one of them: got %v, want %v", a, got, want)
			}
		}
	}
}

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}
