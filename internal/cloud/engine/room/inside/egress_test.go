//go:build linux

package inside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestEgressPath makes the egress path in a network of its own, and checks where connections and
// packets arrive, and which are refused.
func TestEgressPath(t *testing.T) {
	t.Parallel()
	if sockets, problem, err := makeEgressPath(wire.EgressNone, true); sockets != nil || problem != "" || err != nil {
		t.Errorf("got %v, %q and error %v, want nothing", sockets, problem, err)
	}
	apart(t, func() error {
		if err := loopbackUp(); err != nil {
			return err
		}
		sockets, problem, err := makeEgressPath(wire.EgressTry, true)
		if err != nil || problem != "" || len(sockets) != 2 {
			return fmt.Errorf("got %d sockets and the problem %q: %w", len(sockets), problem, err)
		}
		defer wire.CloseAll(sockets)
		problems := []error{
			carriesDNS(sockets[1]), carriesTCP(sockets[0], net.IPv4(203, 0, 113, 7)), ownServices(), gvisorNetwork(),
			shows("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0\n", true), shows("/proc/sys/net/ipv4/ping_group_range", fmt.Sprintf("0\t%d\n", spawn.SlotSize-1), true),
		}
		for _, w := range []wire.EgressPath{wire.EgressTry, wire.EgressBuild} { // it is there already
			sockets, problem, err := makeEgressPath(w, false)
			if sockets != nil || (problem != "") != (w == wire.EgressTry) || (err != nil) == (w == wire.EgressTry) {
				problems = append(problems, fmt.Errorf("%v again: got %d sockets, the problem %q and error %w", w, len(sockets), problem, err))
			}
		}
		return errors.Join(append(problems, shows("/proc/sys/net/ipv4/ping_group_range", "0\t0\n", true))...)
	})
}

// carriesDNS checks that a query to any name server arrives at a socket, and that a packet to another
// port is refused.
func carriesDNS(socket *os.File) error {
	for port, arrives := range map[int]bool{wire.DNSPort: true, wire.DNSPort + 1: false} {
		conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(203, 0, 113, 9), Port: port})
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("query")); err != nil {
			return err
		}
		if !arrives {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("a packet to port %d: got error %w, want %w", port, err, unix.ECONNREFUSED)
			}
			continue
		}
		text := make([]byte, 16)
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(socket.Fd()), Events: unix.POLLIN}}, int(patience.Limit.Milliseconds())); err != nil {
			return err
		}
		n, _, _, _, err := unix.Recvmsg(int(socket.Fd()), text, nil, unix.MSG_DONTWAIT)
		if err != nil || string(text[:n]) != "query" {
			return fmt.Errorf("the listener for queries got %q: %w", text[:max(n, 0)], err)
		}
	}
	return nil
}

// carriesTCP checks that a connection to any address arrives at a socket, with its destination.
func carriesTCP(socket *os.File, to net.IP) error {
	conn, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: to, Port: 4444})
	if err != nil {
		return err
	}
	defer conn.Close()
	fd, _, err := unix.Accept(int(socket.Fd()))
	if err != nil {
		return err
	}
	defer wire.CloseFD(fd)
	at, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	if got, ok := at.(*unix.SockaddrInet4); !ok || !to.Equal(net.IP(got.Addr[:])) || got.Port != 4444 {
		return fmt.Errorf("a connection to %v arrived at %+v", to, at)
	}
	return nil
}

// ownServices checks that programs reach each other through the loopback and the sandbox's own address.
func ownServices() error {
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	for _, ip := range []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 9, 9, 9), ownAddress.AsSlice()} {
		conn, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: ip, Port: l.Addr().(*net.TCPAddr).Port})
		if err != nil {
			return err
		}
		accepted, err := l.Accept()
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
		if err := accepted.Close(); err != nil {
			return err
		}
	}
	return nil
}

// gvisorNetwork checks the network that gVisor is started in.
func gvisorNetwork() error {
	space := func() string {
		name, err := os.Readlink("/proc/thread-self/ns/net")
		return fmt.Sprint(name, err)
	}
	outside, inside := space(), ""
	var has []netlink.Addr
	var routes []netlink.Route
	err := inNetwork(func() error {
		inside = space()
		far, err := netlink.LinkByName(farDevice)
		if err != nil {
			return err
		}
		has, err = netlink.AddrList(far, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		routes, err = netlink.RouteList(far, netlink.FAMILY_V4)
		return errors.Join(err, os.ErrInvalid)
	})
	if !errors.Is(err, os.ErrInvalid) || space() != outside || inside == outside {
		return fmt.Errorf("started in %s, and now in %s, where %s was outside: got error %w, want that of the start", inside, space(), outside, err)
	}
	way := slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.Equal(nearAddress.AsSlice()) })
	if len(has) != 1 || !has[0].IP.Equal(farAddress.AsSlice()) || !way {
		return fmt.Errorf("gVisor's device has the addresses %v and the routes %v", has, routes)
	}
	return nil
}

// TestDeniedNetworks checks the rules that close the network of a pod, by the connections that they refuse.
func TestDeniedNetworks(t *testing.T) {
	t.Parallel()
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	must.Do(t, os.WriteFile(resolv, []byte("search a.test\nnameserver 10.0.0.53\nnameserver fe80::1%eth0\nnameserver\nnameserver x\n# nameserver 10.0.0.54\n"), 0o644))
	servers := []string{"100 10.0.0.53/32 17 53", "100 10.0.0.53/32 6 53", "100 fe80::1/128 17 53", "100 fe80::1/128 6 53"}
	for _, tt := range []struct {
		networks []string
		fails    bool
		want     []string
		refused  string // of three destinations: the server, another of its ports, and an address outside of 10.0.0.0/8
	}{
		{nil, false, nil, "..."},
		{[]string{"10.0.0.0/8", "fc00::/7"}, false, append(slices.Clone(servers), "200 10.0.0.0/8", "200 fc00::/7"), ".x."},
		{[]string{"0.0.0.0/0"}, false, []string{"200 0.0.0.0/0"}, "xxx"},
		{[]string{"10.0.0.0/33"}, true, servers, "..."},
	} {
		apart(t, func() error {
			err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(resolv, "/etc/resolv.conf", "", unix.MS_BIND, ""), loopbackUp())
			if err != nil {
				return err
			}
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}}); err != nil {
				return err
			}
			if err := denyNetworks(tt.networks); (err != nil) != tt.fails {
				t.Errorf("%v: got error %v, want one: %v", tt.networks, err, tt.fails)
			}
			got, err := rulesOf()
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("%v: got the rules %q, want %q", tt.networks, got, tt.want)
			}
			refused := ""
			for _, to := range []string{"10.0.0.53:53", "10.0.0.53:54", "192.0.2.1:54"} {
				conn, err := net.Dial("udp4", to)
				switch {
				case err == nil:
					refused += "."
					err = conn.Close()
				case errors.Is(err, unix.EACCES):
					refused += "x"
				}
				if err != nil && !errors.Is(err, unix.EACCES) {
					return err
				}
			}
			if refused != tt.refused {
				t.Errorf("%v: refused %s, want %s", tt.networks, refused, tt.refused)
			}
			return err
		})
	}
}

// rulesOf returns the rules of this network that denyNetworks made.
func rulesOf() (rules []string, err error) {
	all, err := netlink.RuleList(netlink.FAMILY_ALL)
	for _, r := range all {
		if r.Priority != allowPriority && r.Priority != denyPriority {
			continue
		}
		text := fmt.Sprintf("%d %v", r.Priority, r.Dst)
		if r.Dst == nil {
			text = fmt.Sprintf("%d 0.0.0.0/0", r.Priority)
		}
		if r.Dport != nil {
			text += fmt.Sprintf(" %d %d", r.IPProto, r.Dport.Start)
		}
		rules = append(rules, text)
	}
	slices.Sort(rules)
	return rules, err
}
