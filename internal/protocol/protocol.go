// Package protocol defines the facts about E2B's protocol that both the SDK and the local cloud need: ports,
// headers, and the version and user of the daemon (envd).
package protocol

// Ports of a sandbox.
const (
	PortEnvd        = 49983 // the daemon, which serves processes and files
	PortInterpreter = 49999 // the interpreter, which runs code over HTTP and manages contexts
	PortJupyter     = 8888  // the Jupyter server; clients reach its kernels over websockets
)

// OwnPort reports whether the sandbox itself serves a port. No program of the sandbox's user
// listens on such a port.
func OwnPort(port int) bool {
	return port == PortEnvd || port == PortInterpreter || port == PortJupyter
}

// Headers of requests to a service.
const (
	HeaderAPIKey      = "X-Api-Key"       // the key for the REST API
	CodeUnsupported   = "unsupported"     // the code of an error: the engine or the machine of a local cloud lacks a feature
	HeaderIdempotency = "Idempotency-Key" // the key of a create request, which may then be repeated
	// the key of a label in a create request; no other sandbox may have the same value of this
	// label; a local cloud enforces this
	HeaderUniqueLabel = "E2bctl-Unique-Label"
	// the token of the next page, in an answer that is not the last page
	HeaderNextToken   = "X-Next-Token"
	HeaderSandboxID   = "E2b-Sandbox-Id"           // the sandbox that a request is for
	HeaderSandboxPort = "E2b-Sandbox-Port"         // the port of that sandbox
	HeaderAccess      = "X-Access-Token"           // the token for the daemon of a secured sandbox
	HeaderTraffic     = "E2b-Traffic-Access-Token" // the token for the ports of a private sandbox
)

// TrailerOutputHeld is a trailer that the local cloud's daemon adds at the end of a command's
// stream. It means that processes which the command started still run and have the command's output
// open. E2B's daemon has no such trailer.
const TrailerOutputHeld = "E2bctl-Output-Held"

// EnvdVersion is the version of envd, the daemon in a sandbox. The local cloud implements the protocol of this
// version. Clients use it to decide which calls they may make.
const EnvdVersion = "0.6.13"

// UserID is the user id of the account "user" in a sandbox, and the id of its group.
const UserID = 1000
