// Package headers puts headers into the requests of a sandbox on their way out, so that
// programs inside use secrets that never enter the sandbox.
//
// Each sandbox has an [Authority] of its own, whose certificate programs inside trust. A
// [Door] ends the TLS of connections to hosts that the rules have headers for, and sends
// their requests on over connections whose certificates it has verified. All other
// connections are carried as they are.
//
// What comes out of a sandbox is hostile. A request is sent on only to the host that its
// connection was for, over https, and is written anew from what was understood of it: what
// a client has between two requests reaches no server. Of a header that a rule sets, nothing
// remains that the client sent.
//
// A host that repeats headers in its answers tells the sandbox the secret: a rule is as
// trustworthy as its host. Of the methods of RFC 9110, TRACE asks every host for that, so it
// is refused, as are CONNECT and all methods that are neither in that RFC nor PATCH.
package headers
