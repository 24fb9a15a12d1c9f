package edge

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// class is a class of requests to one sandbox. Each class has its own limit, so that requests
// of one class never keep out requests of another.
type class int

const (
	toPrograms  class = iota // to ports of user programs
	ofOwner                  // to the sandbox's own ports, with the sandbox's token
	ofStrangers              // to the sandbox's own ports, without the token
	classes
)

// limit returns the maximum number of concurrent requests of a class, including upgraded
// connections.
func (k class) limit() int {
	if k == ofStrangers {
		return maxStrangers
	}
	return maxRequests
}

const (
	maxRequests = 1000
	// maxStrangers bounds the requests without the token to the sandbox's own ports. It is lower than
	// the number of requests that these ports can serve, so requests without the token cannot keep
	// out the owner. The sandbox refuses a request without the token at once. Therefore such a request
	// lasts only if its sender keeps it open.
	maxStrangers = 32
)

// classOf returns the class of a request.
func (u *upstream) classOf(r *http.Request, port int) class {
	switch {
	case !protocol.OwnPort(port):
		return toPrograms
	case u.guards(port): // carry has checked the token
		return ofOwner
	case u.authorized(r):
		return ofOwner
	}
	return ofStrangers
}

// admission counts the concurrent requests of one class.
type admission struct {
	inFlight atomic.Int64
	mu       sync.Mutex
	warned   time.Time // time of the latest log entry about refused requests
}

// admit counts a request and returns true. If there are too many requests, it returns false. The
// caller calls done after the request.
func (u *upstream) admit(k class) (done func(), ok bool) {
	a := &u.admissions[k]
	if a.inFlight.Add(1) > int64(k.limit()) {
		a.inFlight.Add(-1)
		return nil, false
	}
	return func() { a.inFlight.Add(-1) }, true
}

// refuse answers a request that admit refused.
func (rt *Router) refuse(w http.ResponseWriter, r *http.Request, u *upstream, port int, k class) {
	rt.tooMany(w, r, u, port, k, k.limit(), fmt.Errorf("%d requests are in flight", k.limit()))
}

// tooMany answers a request that is refused because there are too many connections. It writes
// the reason to the sandbox's log. A limit of 0 means that the router does not know the limit.
func (rt *Router) tooMany(w http.ResponseWriter, r *http.Request, u *upstream, port int, k class, limit int, why error) {
	if u.admissions[k].warn() {
		rt.options.Logger.WarnContext(r.Context(), "too many connections: new ones are refused with status 429 until some are closed", "sandbox", u.ID, "port", port, "error", why)
	}
	writeError(w, r, sandboxError{SandboxID: u.ID, Message: messageTooMany, ConnectionLimit: limit, Code: http.StatusTooManyRequests})
}

// warnEvery is the minimum time between two log entries about the same class of a sandbox.
const warnEvery = time.Minute

// warn reports whether enough time has passed for another log entry.
func (a *admission) warn() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.warned) < warnEvery {
		return false
	}
	a.warned = time.Now()
	return true
}
