//go:build linux

package inside

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// This file contains the first stage's part of a sandbox's egress path. The network namespace has
// a loopback and no other device. Every address is local to it, so a connection to any address
// stays inside, and the kernel hands it to a listener: TCP on any port to one, DNS queries to any
// name server to another. Both listeners are made here, before any of the sandbox's code runs,
// and are passed to the server. From then on nothing inside has the right to change any of this.
// A process that could would only cut the sandbox off, as there is no other way out.

// Addresses of a sandbox's network. They are link-local. No sandbox can reach the link-local network
// outside, so these addresses do not hide any address that programs could otherwise reach.
var (
	ownAddress      = netip.AddrFrom4([4]byte{169, 254, 0, 21})
	listenerAddress = netip.AddrFrom4([4]byte{169, 254, 0, 22}) // the address of the listeners, and of the resolver
	loopbackNet     = netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
)

const (
	listenerPort = 1 // the port of the TCP listener; no service uses this port
	listenerMark = 1 // the mark of packets for a listener
)

// buildEgressPath makes the egress path of this network namespace. It returns the two sockets of the
// path: a TCP socket, which does not listen yet, and a UDP socket.
func buildEgressPath(ranged bool) (_ []*os.File, err error) {
	if err := openRanges(ranged); err != nil {
		return nil, err
	}
	if err := routeInside(); err != nil {
		return nil, err
	}
	if err := divert(); err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	var sockets []*os.File
	defer func() {
		if err != nil {
			wire.CloseAll(sockets)
		}
	}()
	for _, s := range []struct {
		typ  int
		port uint16
	}{{unix.SOCK_STREAM, listenerPort}, {unix.SOCK_DGRAM, wire.DNSPort}} {
		f, err := transparentSocket(s.typ, s.port)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, f)
	}
	return sockets, nil
}

// openRanges permits every process inside to use ping, and to listen on ports below 1024. The groups
// with permission for ping range from 0 to the last group that exists inside.
func openRanges(ranged bool) error {
	groups := "0 0"
	if ranged {
		groups = fmt.Sprintf("0 %d", spawn.SlotSize-1)
	}
	return errors.Join(
		os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0),
		os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte(groups), 0),
	)
}

// routeInside makes every IPv4 address local to this namespace. IPv6 has only the loopback address,
// so that programs fall back to IPv4 at once.
func routeInside() error {
	link, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: ownAddress.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("add an address: %w", err)
	}
	err = netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		Src:       ownAddress.AsSlice(),
		Type:      unix.RTN_LOCAL,
		Table:     unix.RT_TABLE_LOCAL,
		Scope:     unix.RT_SCOPE_HOST,
	})
	if err != nil {
		return fmt.Errorf("add a local route: %w", err)
	}
	return nil
}

// divert passes outgoing packets of the kinds that the listeners serve to the listeners. It refuses
// all other packets. If it did not, the sandbox itself would answer them for every address.
func divert() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "egress"})
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	own := func(chain *nftables.Chain) {
		for _, p := range []netip.Prefix{loopbackNet, netip.PrefixFrom(ownAddress, 32)} {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(toPrefix(p), accept)})
		}
	}
	out := c.AddChain(&nftables.Chain{
		Name: "out", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	own(out)
	c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: toListener(append(protocol4(unix.IPPROTO_UDP), toPort(wire.DNSPort)...), wire.DNSPort)})
	c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: toListener(protocol4(unix.IPPROTO_TCP), listenerPort)})
	rest := c.AddChain(&nftables.Chain{
		Name: "rest", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	own(rest)
	c.AddRule(&nftables.Rule{Table: table, Chain: rest, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(listenerMark)},
		accept,
	}})
	c.AddRule(&nftables.Rule{Table: table, Chain: rest, Exprs: append(protocol4(unix.IPPROTO_TCP),
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})})
	const portUnreachable = 3
	c.AddRule(&nftables.Rule{Table: table, Chain: rest, Exprs: []expr.Any{
		&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable},
	}})
	return c.Flush()
}

// toPrefix matches packets to the addresses of a network.
func toPrefix(p netip.Prefix) []expr.Any {
	to := p.Addr().As4()
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(p.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: to[:]},
	}
}

func protocol4(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}

func toPort(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

// toListener passes matching packets to the socket at the given port of listenerAddress, if the
// socket listens.
func toListener(match []expr.Any, port uint16) []expr.Any {
	to := listenerAddress.As4()
	return append(match,
		&expr.Immediate{Register: 1, Data: to[:]},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.TProxy{Family: byte(nftables.TableFamilyIPv4), TableFamily: byte(nftables.TableFamilyIPv4), RegAddr: 1, RegPort: 2},
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(listenerMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
		&expr.Verdict{Kind: expr.VerdictAccept},
	)
}

// transparentSocket makes a socket that accepts traffic for other addresses.
func transparentSocket(typ int, port uint16) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = errors.Join(
		os.NewSyscallError("set IP_TRANSPARENT", unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)),
		os.NewSyscallError("set IP_PKTINFO", unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1)),
	)
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: listenerAddress.As4(), Port: int(port)}))
	}
	if err != nil {
		wire.CloseFD(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "egress"), nil
}

// tryEgressPath connects to an unassigned address, and checks that the connection arrives at the
// listener. This is necessary because a kernel may accept all rules but be unable to apply them.
func tryEgressPath(sockets []*os.File) error {
	destination := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 9}
	listener := int(sockets[0].Fd())
	if err := unix.Listen(listener, 1); err != nil {
		return os.NewSyscallError("listen", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer wire.CloseFD(fd)
	if err := unix.Connect(fd, destination); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect through it: %w", err)
	}
	const patience = 2000 // milliseconds
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, patience); n == 0 {
		return errors.Join(errors.New("a connection did not arrive"), os.NewSyscallError("poll", err))
	}
	accepted, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("accept", err)
	}
	defer wire.CloseFD(accepted)
	to, err := unix.Getsockname(accepted)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	if got, ok := to.(*unix.SockaddrInet4); !ok || got.Addr != destination.Addr || got.Port != destination.Port {
		return errors.New("a connection arrived without its destination")
	}
	return nil
}

// makeEgressPath makes the egress path that w requests. If w is [wire.EgressTry], it also tries the path.
// If the path then cannot be made or does not work, problem is the reason, and err is nil.
func makeEgressPath(w wire.EgressPath, ranged bool) (sockets []*os.File, problem string, err error) {
	if w == wire.EgressNone {
		return nil, "", nil
	}
	sockets, err = buildEgressPath(ranged)
	if err == nil && w == wire.EgressTry {
		if err = tryEgressPath(sockets); err != nil {
			wire.CloseAll(sockets)
			sockets = nil
		}
	}
	if err != nil && w == wire.EgressTry {
		return nil, err.Error(), nil
	}
	return sockets, "", err
}
