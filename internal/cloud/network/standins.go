package network

import (
	"net/netip"
	"sync"
)

// standInNetwork contains the addresses that stand for names. The network is reserved for
// benchmarks. Other programs that answer DNS questions with invented addresses also use this
// network.
var standInNetwork = netip.MustParsePrefix("198.18.0.0/15")

const (
	standInCount = 1 << 17
	maxStandIns  = 4096 // maximum number of names that have an address at the same time
)

// standIns contains the addresses that stand for names in one sandbox. The zero value has no names.
// It is safe for concurrent use.
//
// A program is asked about a name and a port, but a DNS question has no port. Therefore the answer
// to a DNS question is an address of standInNetwork that stands for the name. The connection to
// that address has a port. Only when this connection is opened, the program is asked, and the name
// is looked up.
type standIns struct {
	mu        sync.Mutex
	count     uint32 // number of addresses that were given out
	addresses map[string]netip.Addr
	names     map[netip.Addr]string
}

// address returns the address that stands for a normalized name.
func (s *standIns) address(name string) netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.addresses[name]; ok {
		return a
	}
	if s.names == nil {
		s.names, s.addresses = map[netip.Addr]string{}, map[string]netip.Addr{}
	}
	if s.count >= maxStandIns {
		oldest := nthStandIn(s.count - maxStandIns)
		delete(s.addresses, s.names[oldest])
		delete(s.names, oldest)
	}
	a := nthStandIn(s.count)
	s.count++
	s.addresses[name], s.names[a] = a, name
	return a
}

// name returns the name for which an address stands. It returns "" if the address stands for no
// name.
func (s *standIns) name(a netip.Addr) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[a.Unmap()]
}

// nthStandIn returns the n-th address of standInNetwork that is given out. n counts from 0. An
// address is given out again, for another name, only after all other addresses were given out.
func nthStandIn(n uint32) netip.Addr {
	n = (n + 1) % standInCount
	a := standInNetwork.Addr().As4()
	a[1], a[2], a[3] = a[1]+byte(n>>16), byte(n>>8), byte(n)
	return netip.AddrFrom4(a)
}

// standInFor returns the name for which an address stands in the sandbox. It returns "" if the
// address stands for no name.
func (e *Egress) standInFor(a netip.Addr) string {
	if e.Asks == nil {
		return ""
	}
	return e.Asks.standIns.name(a)
}
