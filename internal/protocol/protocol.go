// Package protocol defines the facts about E2B's protocol that both the SDK and the local cloud need: ports,
// headers, and the version and user of the daemon (envd).
package protocol

// Ports of a sandbox.
const (
	PortEnvd        = 49983 // the daemon, which serves processes and files
	PortInterpreter = 49999 // the interpreter, which runs code over HTTP and manages contexts
	PortJupyter     = 8888  // the server of kernels, which are reached over websockets
)

// OwnPort reports whether a sandbox serves a port itself: no program of its user listens there.
func OwnPort(port int) bool {
	return port == PortEnvd || port == PortInterpreter || port == PortJupyter
}

// Headers of requests to a service.
const (
	HeaderAPIKey      = "X-Api-Key"       // the key for the REST API
	HeaderIdempotency = "Idempotency-Key" // the name of a create request that may be repeated
	// the key of a label in a create request; no other sandbox may have the same value of the
	// label; a local cloud heeds it
	HeaderUniqueLabel = "E2bctl-Unique-Label"
	// the token of the next page, in an answer that is not the last page
	HeaderNextToken   = "X-Next-Token"
	HeaderSandboxID   = "E2b-Sandbox-Id"           // the sandbox that a request is for
	HeaderSandboxPort = "E2b-Sandbox-Port"         // the port of that sandbox
	HeaderAccess      = "X-Access-Token"           // the token for the daemon of a secured sandbox
	HeaderTraffic     = "E2b-Traffic-Access-Token" // the token for the ports of a private sandbox
)

// TrailerOutputHeld is added by the local cloud's daemon to the end of the stream
// of a command that left its output to processes that are still running. E2B's daemon
// has no such trailer.
const TrailerOutputHeld = "E2bctl-Output-Held"

// EnvdVersion is the version of envd, the daemon in a sandbox. The local cloud implements the protocol of this
// version. Clients use it to decide which calls they may make.
const EnvdVersion = "0.6.13"

// UserID is the id of the account "user" in a sandbox, and of its group.
const UserID = 1000
