// Package edge finds the sandbox and the port of a request by Host, by header or, for a file
// URL without either, by its signature. It forwards the request there: unchanged, streaming
// both ways, including websockets. A request for no sandbox goes to the API, if the Host is one
// of the API's.
//
// An answer is forwarded unchanged, too, with two exceptions at the address that the API and
// all sandboxes share. An answer to a signed file URL is confined, so that its document does
// not have the origin of that address in a browser. An answer to a request that was routed by
// headers tells caches so.
//
// A pause ends every request and connection into a sandbox. The next request wakes the sandbox
// and waits for it, if it carries the token for its port; otherwise it is refused with 403. Two
// requests never wake it, and are answered as for an unknown sandbox: GET /health of envd, with
// which clients ask whether the sandbox runs (on the hosted service, it wakes the sandbox,
// too), and a browser's preflight request, which carries no token.
//
// A sandbox reaches others by their public names only, through ServePeer: each request must be
// for the name to which its connection was dialled.
//
// It opens connections through a function that each sandbox supplies, and knows nothing else
// about sandboxes.
package edge
