// Package edge finds the sandbox and the port that a request is for, by Host, by
// header or, for a file URL that names none, by its signature, and forwards the
// request there: unchanged, streaming both ways, including websockets. A request
// for no sandbox goes to the API, if the Host is one that the API answers to.
//
// An answer is forwarded unchanged, too, with two exceptions at the address that the API and
// all sandboxes share. One to a signed file URL is confined, so that what a browser makes of it
// does not have the origin of that address. One that headers routed tells caches so.
//
// A pause ends every request and connection into a sandbox. The next request wakes the
// sandbox and waits for that, if it carries the token that its port asks for; else it is
// refused with 403. Two never do, and are answered as for an unknown sandbox: GET /health
// of envd, with which clients ask whether the sandbox runs, although the hosted service
// takes that for traffic, too; and a browser's preflight request, which carries no token.
//
// A sandbox reaches others by their public names alone, ServePeer: each request must be for the
// name that its connection was dialled to.
//
// It opens connections through a function that each sandbox supplies, and knows
// nothing about what a sandbox is.
package edge
