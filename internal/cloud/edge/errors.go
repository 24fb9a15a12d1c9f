package edge

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Texts of error answers. They are the same as on the hosted service, because clients match
// some of them.
const (
	messageNotFound       = "The sandbox was not found"
	messagePortClosed     = "The sandbox is running but port is not open"
	messageNoPorts        = "The sandbox runs code without processes, so nothing listens on its ports"
	messageReserved       = "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL"
	messageTrafficMissing = "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
	messageCodeLocked     = "The ports that run code need a token of the sandbox here: send 'X-Access-Token' or 'e2b-traffic-access-token', whose values the answer to create and connect has; clients too old for both need a server with --public-code"
	messageTrafficInvalid = "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	messageTooMany        = "The sandbox has too many open connections"
	messageBroken         = "The connection to the sandbox broke before it answered. Try again in a moment."
	messageNoTLS          = "The port is one of httpsPorts, but what listens there does not speak TLS"
	messageMethod         = "CONNECT and TRACE are not possible through the sandbox URL"
	messageAsleep         = "The sandbox is paused, and only a request with its token resumes it. Token header 'X-Access-Token' is missing or invalid"
	messageBusy           = "The sandbox is changing its state. Try again in a moment."
	messageLimit          = "The sandbox is paused, and cannot be resumed: as many sandboxes run as may"
	messageNoWake         = "The sandbox is paused, and could not be resumed. Try again in a moment."
	messageTwice          = "A page may not name a sandbox in headers when it uses a signed URL, which names one by its signature: leave the headers out"
	messageWorker         = "A signed URL is no script of a service worker, which would serve the pages of every sandbox at this address"
	messagePeerHost       = "The request is for another host than the connection: connect to the host itself"
	messagePeerOwn        = "The sandbox has no access token, so other sandboxes cannot reach this port of it: create it with secure"
	messageHost           = "this host is not served here: use localhost or an IP address; e2bctl serve --host NAME serves further names"
)

// sandboxError is the answer to a request that cannot be forwarded. The order of its fields is
// the same as on the hosted service.
type sandboxError struct {
	SandboxID       string `json:"sandboxId"`
	Message         string `json:"message"`
	Reason          string `json:"reason,omitempty"`  // why the sandbox ended; not a field of the service
	Port            *int   `json:"port,omitempty"`    // nil: the error is not about a port
	NoPorts         bool   `json:"noPorts,omitempty"` // no port will ever be open; not a field of the service
	ConnectionLimit int    `json:"connectionLimit,omitempty"`
	Code            int    `json:"code"`
}

type reservedRoute struct {
	Message string `json:"message"`
	Path    string `json:"path"`
	Code    int    `json:"code"`
}

// misdirected is the answer to a request with a wrong Host. It has the format of the API's
// errors, because the client meant to reach the API.
type misdirected struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e sandboxError) page() page {
	return page{Status: e.Code, Message: e.Message, Reason: e.Reason, Sandbox: e.SandboxID, Port: e.Port, Limit: e.ConnectionLimit}
}

func (e reservedRoute) page() page {
	return page{Status: e.Code, Message: e.Message, Path: e.Path}
}

func (e misdirected) page() page { return page{Status: e.Code, Message: e.Message} }

// writeError answers with the error as JSON, or as an HTML page for browsers.
func writeError(w http.ResponseWriter, r *http.Request, e interface{ page() page }) {
	p := e.page()
	kind := "application/json; charset=utf-8"
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // unreachable: only types of this package are passed
	}
	if wantsPage(r) {
		kind = "text/html; charset=utf-8"
		body = p.render()
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}
