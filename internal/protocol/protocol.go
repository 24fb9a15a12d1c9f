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

// Headers with which a client continues to receive the output of a process after its connection was
// cut. The local cloud's daemon keeps the newest output of each process. E2B's daemon ignores the
// headers.
const (
	// HeaderOutputFrom is the offset of the first byte of a process's output that a client requests,
	// or [OutputFromNow]. It is a header of a Connect request. The offset counts the bytes of all
	// streams of the process, in the order in which the daemon has read them. In a Start request
	// the header is 0, and means that the client connects again after a cut. While the client is
	// absent, the daemon then holds up the process for a few seconds. In an answer, the header is the
	// offset at which the output begins. If the requested output is no longer kept, this is a later
	// offset.
	HeaderOutputFrom = "E2bctl-Output-From"
	// HeaderOutputOf is the id of the process. The client chooses the id in a Start request, so that it
	// can find the process if the answer is cut off. In a Connect request with HeaderOutputFrom, the
	// id selects the process. The answer to either request also contains the id.
	HeaderOutputOf = "E2bctl-Output-Of"
	// HeaderOutputStream is the name of a stream of output. The answer with the stream contains it.
	// While the client receives output, it sends a StreamInput request with the name of the stream,
	// HeaderOutputOf, and as HeaderOutputFrom the offset of the first byte that it has not received. The
	// first message selects the process, and each keepalive message reports OutputStep further bytes. A
	// process whose output may be lost in a cut waits for these reports. It asks for one by a data event
	// without output. The client answers with an Update request with the same headers, because a proxy
	// may hold back the messages of the other request. A Connect request after a cut contains the name of
	// the stream that was cut. The daemon ends that stream.
	HeaderOutputStream = "E2bctl-Output-Stream"
	// OutputStep is the number of received bytes that such a client reports at once. At least twice as
	// many bytes may be on the way to the client without a request for a report.
	OutputStep = 4 << 20
	// OutputFromNow requests the output that a process writes from now on.
	OutputFromNow = "now"
)

// Extensions of the routes for events. E2B's service ignores the parameters "after" and "wait", and its
// answers do not have the headers.
const (
	// HeaderEventsNext is the id of the last event that the answer takes into account. As the
	// parameter "after" of the next request, it selects the events after this event. If there are no
	// such events and "wait" is true, the request waits for an event.
	HeaderEventsNext = "E2bctl-Events-Next"
	// HeaderEventsMissed is the number of events that came after the requested one and are no longer
	// kept.
	HeaderEventsMissed = "E2bctl-Events-Missed"
	// EventsMissedUnknown is the value of that header if the number is unknown, because the requested event
	// is one of an earlier server.
	EventsMissedUnknown = -1
	// EventsStart is the value of "after" for all events that are kept.
	EventsStart = "start"
)

// EnvdVersion is the version of envd, the daemon in a sandbox. The local cloud implements the protocol of this
// version. Clients use it to decide which calls they may make.
const EnvdVersion = "0.6.13"

// UserID is the user id of the account "user" in a sandbox, and the id of its group.
const UserID = 1000
