package local

import (
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

// MethodEgress is the [Request].Method of a connection out of a sandbox that the network rules
// denied.
const MethodEgress = requestlog.MethodEgress

// Request is a request that the cloud answered, or a connection that it denied.
type Request struct {
	// Time is the time of arrival, and Duration the duration of the answer.
	Time time.Time
	// Method is the HTTP method, or [MethodEgress].
	Method string
	// Path is the path without the query, because the query may contain a signature. For a denied
	// connection it is the host.
	Path string
	// Status is the status of the answer.
	Status   int
	Duration time.Duration
	// Sandbox is the id of the sandbox that received the request, or that tried to connect;
	// empty for the API.
	Sandbox string
	// Port is the port of the sandbox, or the port that the sandbox tried to connect to. It is
	// 0 for the API, and for a name that a sandbox may not resolve.
	Port int
	// Ignored lists unknown fields of the body, with their paths, and unknown parameters of the
	// query, as ?name.
	Ignored []string
}

// Fault is an answer that replaces the real answer to a request. Operation, Method and Path select
// the requests: the fault applies to a request that matches all of these three fields that are set.
type Fault struct {
	// Operation is the operation of the request. Empty means any request, including requests to
	// sandboxes.
	Operation Operation
	// Method is the method of the request; empty means any.
	Method string
	// Path is a pattern for the path, in the syntax of path.Match; empty means any path. Use Path to
	// select requests to sandboxes: "/execute" runs code, "/files" reads and writes files.
	Path string
	// Status is the status of the answer, 200 to 599; 0 cuts the connection without an
	// answer.
	Status int
	// Message is the error message of the answer.
	Message string
	// Header is added to the answer. A Content-Type in it replaces the default Content-Type, which is
	// that of JSON.
	Header http.Header
	// Times is the number of requests that receive the answer; 0 means one, and a negative number
	// means all requests.
	Times int
}

// Requests returns the last 1024 requests that the cloud answered, oldest first, without
// secrets. Use it to see the requests that an SDK really sent.
func (c *Cloud) Requests() []Request {
	entries := c.service.Requests()
	requests := make([]Request, len(entries))
	for i, entry := range entries {
		requests[i] = Request(entry)
	}
	return requests
}

// Inject makes a later request fail, for tests. If several faults match a request, the fault that
// was injected first applies. But faults without an Operation apply before faults with an
// Operation. Inject returns an error if f is invalid: an unknown Operation, an invalid pattern, an
// invalid Status, or a Header that HTTP does not allow.
func (c *Cloud) Inject(f Fault) error { return c.service.Inject(f.internal()) }

// UnmetFaults returns the faults that no request has met, in the order of their injection. A test
// that ends with such faults has not tested their failures, and package sandboxtest makes the test
// fail.
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
