// Package edge forwards requests to the ports of sandboxes, unchanged and streaming in both
// directions, including websockets. It finds the sandbox and the port by Host, by headers or,
// for a file URL without either, by the signature. If the Host belongs to the API and the
// request names no sandbox, the request goes to the API.
//
// Answers are forwarded unchanged, too, with two exceptions at the address that the API and all
// sandboxes share. An answer to a signed file URL is confined, so that a browser does not give
// its document the origin of that address. An answer to a request that headers routed lists
// these headers for caches.
//
// A pause ends every request and connection into a sandbox. If the next request has the token for
// its port, it wakes the sandbox and waits until the sandbox runs. A request without the token is
// refused with 403. Two kinds of requests never wake a sandbox, and are answered as if the
// sandbox did not exist. The first is GET /health of envd, with which clients check whether the
// sandbox runs. On the hosted service, this request wakes the sandbox. The second is a browser's
// preflight request, which has no token.
//
// A sandbox reaches other sandboxes only by their public names, through ServePeer. Each request
// must be for the name to which its connection was dialled.
//
// The package opens connections through a function that each sandbox supplies, and knows
// nothing else about sandboxes.
package edge
