//go:build linux

package inside

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// install runs in the init container of a pod, and prepares the pod. It first denies the pod the
// networks. Then it copies this program to path. Because of this order, no sandbox can run while
// the networks are not denied.
func install(path string, networks []string) error {
	if err := denyNetworks(networks); err != nil {
		return fmt.Errorf("close the network of the pod: %w; it needs the capability NET_ADMIN in its init container, or a cluster whose policies close it", err)
	}
	if err := copyProgram(path); err != nil {
		return fmt.Errorf("copy the program to %s: %w", path, err)
	}
	return nil
}

func copyProgram(path string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// Priorities of the rules that close a network. The kernel's first rule is the rule for local
// addresses, and no other rule can come before it.
const (
	allowPriority = 100
	denyPriority  = 200
)

// denyNetworks makes the kernel refuse connections to the networks, except to the DNS servers of the
// pod. It uses rules, because the kernel applies rules before routes. So even a route with a longer
// prefix cannot bypass them.
func denyNetworks(networks []string) error {
	if len(networks) == 0 {
		return nil
	}
	var servers []netip.Addr
	var err error
	if !slices.Contains(networks, "0.0.0.0/0") { // without any network there are no names either
		servers, err = nameservers()
	}
	if err != nil {
		return err
	}
	for _, server := range servers {
		for _, protocol := range []int{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rule := ruleTo(netip.PrefixFrom(server, server.BitLen()), allowPriority)
			rule.Table, rule.IPProto, rule.Dport = unix.RT_TABLE_MAIN, protocol, netlink.NewRulePortRange(53, 53)
			if err := netlink.RuleAdd(rule); err != nil {
				return fmt.Errorf("permit the DNS server %s: %w", server, err)
			}
		}
	}
	for _, text := range networks {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		rule := ruleTo(prefix, denyPriority)
		rule.Type = unix.FR_ACT_PROHIBIT
		if err := netlink.RuleAdd(rule); err != nil && (!prefix.Addr().Is6() || !errors.Is(err, unix.EAFNOSUPPORT)) {
			return fmt.Errorf("deny %s: %w", prefix, err)
		}
	}
	return nil
}

// ruleTo returns a rule for packets to a network.
func ruleTo(prefix netip.Prefix, priority int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Priority, rule.Family = priority, unix.AF_INET
	if prefix.Addr().Is6() {
		rule.Family = unix.AF_INET6
	}
	rule.Dst = &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	return rule
}

// nameservers returns the DNS servers of the pod.
func nameservers() ([]netip.Addr, error) {
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var servers []netip.Addr
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "nameserver" {
			if server, err := netip.ParseAddr(fields[1]); err == nil {
				servers = append(servers, server.WithZone(""))
			}
		}
	}
	return servers, nil
}
