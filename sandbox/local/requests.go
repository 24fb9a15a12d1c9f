package local

import (
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

// MethodEgress is the [Request].Method of a connection out of a sandbox that the
// rules of the network denied.
const MethodEgress = requestlog.MethodEgress

// Request is a request that the cloud answered, or a connection that it denied.
type Request struct {
	// Time is the time of its arrival, and Duration how long the answer took.
	Time time.Time
	// Method is the HTTP method, or [MethodEgress].
	Method string
	// Path has no query, which may carry a signature. For a denied connection it is the host.
	Path string
	// Status is the status of the answer.
	Status   int
	Duration time.Duration
	// Sandbox is the id of the sandbox that the request went to, or that wanted to
	// connect; empty for the API.
	Sandbox string
	// Port is the sandbox's port, or the one it wanted to connect to. 0 stands for the
	// API and for a name that a sandbox may not look up.
	Port int
	// Ignored are fields of the body that the cloud does not know, with the path to them, and
	// parameters of the query, as ?name.
	Ignored []string
}

// Fault is an answer that a request receives instead of its real one. It applies
// to requests that match all fields of Operation, Method and Path that are set.
type Fault struct {
	// Operation is the operation of the API that the request is for. Empty means any request,
	// including requests into sandboxes.
	Operation Operation
	// Method is the method of the request; empty means any.
	Method string
	// Path is a pattern for the path, as in path.Match; empty means any. It is meant for
	// requests into sandboxes: "/execute" runs code, "/files" reads and writes them.
	Path string
	// Status is the status of the answer, 200 to 599; 0 cuts the connection without an
	// answer.
	Status int
	// Message is the error message of the answer.
	Message string
	// Header is sent with the answer, whose Content-Type is that of JSON unless Header has
	// another one.
	Header http.Header
	// Times is the number of requests that receive it; 0 means one, and a negative number all.
	Times int
}

// Requests returns the last 1024 requests that the cloud answered, the oldest first. They show the
// requests that an SDK really sent, without secrets.
func (c *Cloud) Requests() []Request {
	entries := c.service.Requests()
	requests := make([]Request, len(entries))
	for i, entry := range entries {
		requests[i] = Request(entry)
	}
	return requests
}

// Inject makes a later request fail, for tests. Of several faults that match a request, the first
// to be injected is used, those without an Operation before the others. The error names the
// mistake in f: an unknown Operation, a pattern that cannot be parsed, an invalid Status, a Header
// that HTTP does not allow.
func (c *Cloud) Inject(f Fault) error { return c.service.Inject(f.internal()) }

// UnmetFaults returns the faults that no request has met, in the order of their injection: a test
// that injected them has not tested those failures. Package sandboxtest fails such a test.
func (c *Cloud) UnmetFaults() []Fault {
	var faults []Fault
	for _, f := range c.service.UnmetFaults() {
		faults = append(faults, Fault{Operation(f.Operation), f.Method, f.Path, f.Status, f.Message, f.Header, f.Times})
	}
	return faults
}

func (f Fault) internal() cloud.Fault {
	return cloud.Fault{
		Operation: string(f.Operation), Method: f.Method, Path: f.Path, Status: f.Status, Message: f.Message, Header: f.Header, Times: f.Times,
	}
}
