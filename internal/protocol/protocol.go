// Package protocol defines the facts about E2B's protocol that both the SDK and the local cloud need: ports,
// headers, and the version and user of the daemon (envd).
package protocol

// Ports of a sandbox.
const (
	PortEnvd        = 49983 // the daemon: processes and files
	PortInterpreter = 49999 // code over HTTP, and contexts
	PortJupyter     = 8888  // kernels, over websockets
)

// OwnPort reports whether a sandbox serves a port itself: no program of its user listens there.
func OwnPort(port int) bool {
	return port == PortEnvd || port == PortInterpreter || port == PortJupyter
}

// Headers of requests to a service.
const (
	HeaderAPIKey      = "X-Api-Key"                // for the REST API
	HeaderIdempotency = "Idempotency-Key"          // of a create request that may be repeated
	HeaderUniqueLabel = "E2bctl-Unique-Label"      // of a create request: the key of a label whose value no other sandbox may have; a local cloud heeds it
	HeaderNextToken   = "X-Next-Token"             // of an answer with more pages
	HeaderSandboxID   = "E2b-Sandbox-Id"           // the sandbox that a request is for
	HeaderSandboxPort = "E2b-Sandbox-Port"         // the port of that sandbox
	HeaderAccess      = "X-Access-Token"           // for the daemon of a secured sandbox
	HeaderTraffic     = "E2b-Traffic-Access-Token" // for the ports of a private sandbox
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
