// Package network is the way out of a sandbox, as the server serves it.
//
// A sandbox has no network but a loopback. What its programs connect to arrives at
// the server, whatever they know of proxies, and so do their questions about names;
// package runtime says how. The sandbox's [Egress] decides: within the cloud's
// [Policy] and the sandbox's [Rules] it connects to where the program wanted to go,
// and it answers questions with the machine's own resolver, leaving out addresses
// that may not be reached. An HTTP [Proxy] inside asks for connections by name, for
// programs that have to be told why they are not connected.
//
// In this order: addresses that no sandbox reaches (loopback, link-local, metadata
// services, this machine's own), addresses that the rules allow, private networks
// where the policy denies them, names that the rules allow, addresses that the
// rules deny. Names and what they resolve to are checked when the connection is
// made, and the address once more when the kernel is given it: a name that resolves
// differently the next time reaches nothing that was not checked. Where only names
// are allowed, a connection to port 80 or 443 is judged by the name in what the
// client says first. What is inside of TLS nobody sees: an allowed server that
// serves other names as well serves these to the sandbox.
//
// A resolver answers inside at 169.254.0.22, so that a name server in a sandbox has
// to name the address it listens on: UDP port 53 of all of them is taken.
//
// There is no IPv6 inside. Of UDP only questions about names leave, so QUIC falls
// back to TCP.
//
// A machine that itself needs a proxy to reach the internet has it in its
// environment; [EnvironmentProxy] makes it the way out of sandboxes too. The proxy
// is asked for the address that was checked, not for the name. A name that does not
// resolve on this machine is left to the proxy only where no network is denied and
// the proxy is on another machine, for it reaches what its own machine reaches.
// [Dialer].ProxyNames is for proxies that filter by name, which then decide.
//
// A name that ends in a number is refused always: resolvers and proxies read
// "127.1", "2130706433" and "0x7f000001" as addresses.
package network
