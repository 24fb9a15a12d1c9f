// Package headers adds headers to the requests of a sandbox on their way out, and refuses requests that
// the rules for a host do not allow. So programs inside can use secrets that never enter the sandbox,
// and read from a host that they must not write to.
//
// Each sandbox has its own [Authority], whose certificate the programs inside trust. A [Door]
// terminates the TLS of connections to hosts with rules for headers or requests. It forwards their requests over
// connections whose certificates it has verified. All other connections are passed on
// unchanged.
//
// The traffic of a sandbox is hostile. A request is forwarded only to the host of its connection,
// and only over https. The Door writes the request anew from its parsed form. So bytes that a
// client sends between two requests reach no server. If a rule sets a header, the client's own
// values of this header are dropped.
//
// A host that repeats request headers in its answers reveals the secret to the sandbox, so a
// rule is only as trustworthy as its host. The method TRACE asks every host to do this.
// Therefore TRACE is refused, and so are CONNECT and all methods that are neither in RFC 9110
// nor PATCH.
package headers
