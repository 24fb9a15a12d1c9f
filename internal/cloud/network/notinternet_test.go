package network

import (
	"net/netip"
	"slices"
	"testing"
)

// TestNotInternet checks that the list has the networks that a policy denies: every end of each is
// denied, and so every address of the tables is in one of them.
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
	for _, text := range []string{
		"10.0.0.1", "100.100.100.200", "168.63.129.16", "169.254.169.254", "172.31.255.255", "192.0.0.192", "192.168.0.1", "198.19.0.1",
		"224.0.0.1", "255.255.255.255", "::ffff:0:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:a00:1::", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
	} {
		if a := netip.MustParseAddr(text); !slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) }) {
			t.Errorf("%v is in none of them", a)
		}
	}
	for _, text := range []string{"1.1.1.1", "9.255.255.255", "11.0.0.0", "168.63.129.15", "172.32.0.0", "223.255.255.255", "2606:4700::1111"} {
		if a := netip.MustParseAddr(text); slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) }) {
			t.Errorf("%v is in one of them", a)
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
