// Package network is the egress path of a sandbox, as the server provides it.
//
// A sandbox has no network but a loopback interface. The connections of its programs arrive at
// the server, even if the programs know nothing of proxies, and so do their DNS questions;
// package room says how. The sandbox's [Egress] decides: within the cloud's [Policy] and the
// sandbox's [Rules] it connects to the program's destination, and it answers DNS questions with
// the machine's own resolver, leaving out addresses that may not be reached. An HTTP [Proxy]
// inside requests connections by name, for programs that should be told the reason of a refusal.
// they are not connected.
//
// Rules are checked in this order: addresses that no sandbox may reach (loopback, link-local,
// metadata services, this machine's own), addresses that the rules allow, private networks if the
// policy denies them, names that the rules allow, addresses that the rules deny. Names and their
// addresses are checked when the connection is made, and the address once more when the kernel is
// given it: a name that resolves differently the next time reaches no unchecked address. If only
// names are allowed, a connection to port 80 or 443 is judged by the name in the client's first
// message, and other connections are not allowed. This also applies to connections that are
// requested from the proxy by name: the name in CONNECT proves nothing. Each request on a
// connection of plain HTTP is judged, and sent on in the form in which it was understood. The
// server cannot see inside TLS: if an allowed server also serves other names, the sandbox can
// reach those too.
//
// Rules can want a program to be asked ([Asks]) about hosts that only the rule about all traffic
// denies, with the port. A DNS question about a name is answered with an address that stands for
// it, and makes no question and no lookup: see standIns. A connection to such an address asks
// about the name and the port, or at ports 80 and 443 about the name that it shows, and if it shows
// none also about the address. After a yes the name is looked up, and its addresses must pass all
// other rules. For other addresses the program is asked about
// the address, even if it was looked up from a name that the rules allow.
//
// The public name of a sandbox's port, such as 8080-i1a2b3.localhost, leads to that sandbox,
// through [Peers]: within the rules for names, and through memory, because no address of this
// machine may be reached. Inside, such names resolve to 127.0.0.1, where a [Relay] listens at the
// port of the cloud.
//
// A resolver listens inside at 169.254.0.22. A name server in a sandbox must
// therefore listen on a specific address: UDP port 53 of the wildcard address is
// taken.
//
// There is no IPv6 inside. Of UDP only DNS questions leave the sandbox, so QUIC
// falls back to TCP.
//
// If the machine itself needs a proxy to reach the internet, the proxy is in its environment;
// [EnvironmentProxy] makes it the egress path of sandboxes too. The proxy is given the checked
// address, not the name. A name that does not resolve on this machine is left to the proxy only
// if no network is denied and the proxy is on another machine, because the proxy reaches
// everything that its own machine reaches. [Dialer].ProxyNames is for proxies that filter by
// name; they then decide.
//
// Rules can have a proxy of the sandbox's own, [EgressProxy]. All permitted connections go
// through it, and none past it. It is given the checked address, or a name that the rules allow
// by name once all its addresses were checked. Its own address is checked like every destination,
// but for the rule about all traffic. It may be reached through the machine's proxy.
//
// A name without a dot, or with localhost in it, is never passed to a proxy: the proxy would look
// for it on its own machine or network.
//
// A name that ends in a number is always refused: resolvers and proxies read
// "127.1", "2130706433" and "0x7f000001" as addresses.
package network
