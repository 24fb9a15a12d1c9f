// Package headers puts headers into the requests of a sandbox on their way out, so that
// programs inside use secrets that never enter the sandbox.
//
// Each sandbox has an [Authority] of its own. Programs inside trust its certificate. A
// [Door] ends the TLS of connections to hosts for which the rules have headers, and sends
// their requests on over connections whose certificates it has verified. All other
// connections are passed on as they are.
//
// The traffic of a sandbox is hostile. A request is sent on only to the host of its
// connection, over https, and is written anew in the form in which it was understood: bytes
// of a client between two requests reach no server. If a rule sets a header, the client's
// own values of it are dropped.
//
// A host that repeats headers in its answers reveals the secret to the sandbox: a rule is as
// trustworthy as its host. Of the methods of RFC 9110, TRACE asks every host to do that, so
// it is refused, as are CONNECT and all methods that are neither in that RFC nor PATCH.
package headers
