//go:build linux

package inside

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// gVisor has its own network namespace in addition to the sandbox's. One end of a pair of devices
// is in gVisor's namespace, and gVisor's network stack reads and writes packets there. The other
// end is in the namespace of the sandbox, where every address is local. So packets from gVisor go
// to the listeners of the egress path, like packets of a process in the sandbox's namespace.
var (
	nearAddress = netip.AddrFrom4([4]byte{169, 254, 0, 25}) // address of the sandbox's end of the link
	farAddress  = netip.AddrFrom4([4]byte{169, 254, 0, 26}) // address of gVisor's end of the link
)

const (
	nearDevice = "gvisor"
	farDevice  = "eth0"
	linkBits   = 30 // prefix length of the network that contains both ends of the link
)

// inNetwork calls start in a network namespace for gVisor.
func inNetwork(start func() error) error {
	runtime.LockOSThread()
	outside, err := openNetwork()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer wire.CloseFD(outside)
	err = makeNetwork(outside)
	if err == nil {
		err = start()
	}
	if back := unix.Setns(outside, unix.CLONE_NEWNET); back != nil {
		return fmt.Errorf("go back to the network namespace: %w", back) // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// openNetwork opens the network namespace of this thread.
func openNetwork() (int, error) {
	const path = "/proc/thread-self/ns/net"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// makeNetwork moves this thread into a new network namespace, and connects the new namespace with
// the sandbox's network namespace.
func makeNetwork(outside int) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	inside, err := openNetwork()
	if err != nil {
		return err
	}
	defer wire.CloseFD(inside)
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	if err := unix.Setns(outside, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of the sandbox: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = nearDevice
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: farDevice, PeerNamespace: netlink.NsFd(inside)}); err != nil {
		return fmt.Errorf("make a pair of devices: %w", err)
	}
	near, err := upWith(nearDevice, nearAddress)
	if err != nil {
		return err
	}
	// It is more specific than the route that makes every address local.
	err = netlink.RouteAdd(&netlink.Route{
		LinkIndex: near.Attrs().Index, Dst: &net.IPNet{IP: farAddress.AsSlice(), Mask: net.CIDRMask(32, 32)},
		Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_LINK, Type: unix.RTN_UNICAST,
	})
	if err != nil {
		return fmt.Errorf("add a route to gVisor: %w", err)
	}
	if err := unix.Setns(inside, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of gVisor: %w", err)
	}
	far, err := upWith(farDevice, farAddress)
	if err != nil {
		return err
	}
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: far.Attrs().Index, Gw: nearAddress.AsSlice()})
	if err != nil {
		return fmt.Errorf("add a route out of gVisor: %w", err)
	}
	return nil
}

// upWith assigns an address to a device and brings it up.
func upWith(name string, address netip.Addr) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(linkBits, 32)}}); err != nil {
		return nil, fmt.Errorf("add an address to %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("switch on %s: %w", name, err)
	}
	return link, nil
}
