// Package network is the egress path of a sandbox, as the server provides it.
//
// A sandbox has no network but a loopback interface. The connections that its
// programs make arrive at the server, even from programs that know nothing of
// proxies, and so do their DNS questions; package room says how. The sandbox's
// [Egress] decides: within the cloud's [Policy] and the sandbox's [Rules] it
// connects to where the program wanted to go, and it answers DNS questions with the
// machine's own resolver, leaving out addresses that may not be reached. An HTTP
// [Proxy] inside requests connections by name, for programs that should be told why
// they are not connected.
//
// Rules are checked in this order: addresses that no sandbox may reach (loopback,
// link-local, metadata services, this machine's own), addresses that the rules
// allow, private networks where the policy denies them, names that the rules allow,
// addresses that the rules deny. Names and the addresses they resolve to are
// checked when the connection is made, and the address once more when the kernel is
// given it: a name that resolves differently the next time reaches nothing that was
// not checked. Where only names are allowed, a connection to port 80 or 443 is
// judged by the name in the client's first message, and other connections are not
// allowed. This holds for connections that the proxy is asked for by name, too: the
// name in CONNECT proves nothing. Each request of a connection of plain HTTP is
// judged, and sent on as it was understood. The server cannot see inside TLS: if an allowed
// server also serves other names, the sandbox can reach those too.
//
// Rules can want a program to be asked about hosts that they do not name, [Asks]: what
// only the rule about all traffic denies. A name is not looked up before the answer, and
// its addresses must pass all other rules after it. An answer about a name holds for
// connections that show the name. A connection that shows none, such as one to another
// port, is asked about by its address, even if an allowed name was looked up to it.
//
// The public name of a sandbox's port, such as 8080-i1a2b3.localhost, leads to that sandbox,
// [Peers]: within the rules for names, and through memory, as no address of this machine may
// be reached. Inside, such names resolve to 127.0.0.1, where a [Relay] listens at the port
// of the cloud.
//
// A resolver listens inside at 169.254.0.22. A name server in a sandbox must
// therefore listen on a specific address: UDP port 53 of the wildcard address is
// taken.
//
// There is no IPv6 inside. Of UDP only DNS questions leave the sandbox, so QUIC
// falls back to TCP.
//
// If the machine itself needs a proxy to reach the internet, the proxy is in its
// environment; [EnvironmentProxy] makes it the egress path of sandboxes too. The
// proxy is given the address that was checked, not the name. A name that does not
// resolve on this machine is left to the proxy only if no network is denied and the
// proxy is on another machine, because the proxy reaches whatever its own machine
// reaches. [Dialer].ProxyNames is for proxies that filter by name; they then
// decide.
//
// Rules can have a proxy of the sandbox's own, [EgressProxy]. What they allow goes through it,
// and nothing past it. It is given the address that was checked, or a name that the rules allow
// by name once all its addresses were checked. Its own address is checked like every
// destination, but for the rule about all traffic. It may be reached through the machine's proxy.
//
// A name without a dot, or with localhost in it, is never passed to a proxy, which would
// take it for its own machine or network.
//
// A name that ends in a number is always refused: resolvers and proxies read
// "127.1", "2130706433" and "0x7f000001" as addresses.
package network
