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
	// Time is when it came, and Duration how long the answer took.
	Time time.Time
	// Method is that of HTTP, or [MethodEgress].
	Method string
	// Path has no query, which may carry a signature. Of a denied connection it is
	// the host.
	Path string
	// Status is that of the answer.
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

// Fault is an answer that a request receives instead of its real one.
type Fault struct {
	// Method is the method of the request; empty means any.
	Method string
	// Path is a pattern for the path, such as "/sandboxes/*", as in path.Match; empty
	// means any.
	Path string
	// Status is the status of the answer; 0 cuts the connection without an answer.
	Status int
	// Message is the error message of the answer.
	Message string
	// Header is sent with the answer.
	Header http.Header
	// Times is how many requests receive it; 0 means one.
	Times int
}

// Requests returns the last 1024 requests that the cloud answered, the oldest
// first: what an SDK really sent, without anything secret.
func (c *Cloud) Requests() []Request {
	entries := c.service.Requests()
	requests := make([]Request, len(entries))
	for i, entry := range entries {
		requests[i] = Request(entry)
	}
	return requests
}

// Inject makes a later request fail, for tests. Of several faults that match a
// request, the first to be injected is used.
func (c *Cloud) Inject(f Fault) { c.service.Inject(cloud.Fault(f)) }
