// Package network implements the egress path of sandboxes in the server.
//
// A sandbox has no network interface except loopback. The connections and DNS questions of its
// programs arrive at the server, even if the programs do not use a proxy. The documentation of
// package room describes this path. The sandbox's [Egress] decides about the connections and the
// questions. It connects to a program's destination if the cloud's [Policy] and the sandbox's
// [Rules] allow it. It answers DNS questions with the machine's own resolver, and leaves out
// addresses that may not be reached. Programs can also request connections by name from an HTTP
// [Proxy] inside the sandbox. When the proxy refuses a connection, it reports the reason.
//
// Rules are checked in this order: addresses that no sandbox may reach (loopback, link-local,
// metadata services, this machine's own), addresses that the rules allow, private networks if the
// policy denies them, names that the rules allow, addresses that the rules deny. Names and their
// addresses are checked when a connection is made, and the address is checked again just before the
// kernel connects to it. So even if a name resolves differently the next time, no unchecked address
// is reached. If only names are allowed, the name in the client's first message decides about a
// connection to port 80 or 443, and other connections are not allowed. This is also true of
// connections that are requested from the proxy by name, because the name in CONNECT proves
// nothing. On a plain HTTP connection, each request is checked, and is written anew from its parsed
// form. The server cannot look inside TLS: if an allowed server also serves other names, the
// sandbox can reach those names, too.
//
// Rules can require a question to a program ([Asks]) about hosts that only the rule about all
// traffic denies. A question is about a host and a port. A DNS question about a name causes neither
// a question to the program nor a lookup. It is answered with an address that stands for the name,
// see standIns. A connection to such an address causes a question about the name and the port. At
// ports 80 and 443, the question is about the name in the client's first message. If that message
// contains no name, there are questions about the name for which the address stands, and about each
// address of this name. If the program allows a name, the name is looked up, and its addresses must
// pass all other rules. For a connection to any other address, the program is asked about the
// address, even if a client looked it up from a name that the rules allow. There is one exception:
// if the client's first message to port 80 or 443 contains a name, this name decides instead.
//
// The public name of a sandbox's port, such as 8080-i1a2b3.localhost, leads to that sandbox through
// [Peers]. The rules for names apply. The connection is made in memory, because no address of this
// machine may be reached. Inside a sandbox, such names resolve to 127.0.0.1, and a [Relay] listens
// on that address at the port of the cloud.
//
// A resolver listens at 169.254.0.22 inside the sandbox. UDP port 53 of the wildcard address is
// therefore in use, so a name server in a sandbox must listen on a specific address.
//
// There is no IPv6 inside a sandbox. The only UDP traffic that leaves a sandbox is DNS questions,
// so QUIC falls back to TCP.
//
// If the machine itself needs a proxy to reach the internet, the proxy is named in the machine's
// environment. [EnvironmentProxy] makes this proxy the egress path of sandboxes, too. The proxy
// receives the checked address, not the name. If a name does not resolve on this machine, the proxy
// receives the name, but only if no network is denied and the proxy is on another machine. The
// reason is that the proxy can reach everything that its own machine can reach.
// [Dialer].ProxyNames is for proxies that filter by name. With this option, the proxy decides about
// names.
//
// Rules can name a proxy for a single sandbox, [EgressProxy]. All permitted connections go
// through this proxy. It receives the checked address. If the rules allow a name, it receives
// the name after all addresses of the name were checked. The address of the proxy is checked
// like every destination, except that the rule about all traffic does not apply. The proxy may
// be reached through the machine's proxy.
//
// A name without a dot, or with localhost in it, is never passed to a proxy, because the proxy
// would look up the name on its own machine or network.
//
// A name that ends in a number is always refused, because resolvers and proxies read "127.1",
// "2130706433" and "0x7f000001" as addresses.
package network
