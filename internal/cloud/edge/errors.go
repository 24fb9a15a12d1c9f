package edge

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Texts of the error answers. Clients match some of them, so they are those of
// the hosted service where it has one.
const (
	messageNotFound       = "The sandbox was not found"
	messagePortClosed     = "The sandbox is running but port is not open"
	messageReserved       = "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL"
	messageTrafficMissing = "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
	messageTrafficInvalid = "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	messageTooMany        = "The sandbox has too many open connections"
	messageBroken         = "The connection to the sandbox broke before it answered. Try again in a moment."
	messageConnect        = "CONNECT is not possible through the sandbox URL"
)

// sandboxError is the answer when a request cannot be carried. The order of the
// fields is the hosted service's.
type sandboxError struct {
	SandboxID       string `json:"sandboxId"`
	Message         string `json:"message"`
	Port            int    `json:"port,omitempty"`
	ConnectionLimit int    `json:"connectionLimit,omitempty"`
	Code            int    `json:"code"`
}

type reservedRoute struct {
	Message string `json:"message"`
	Path    string `json:"path"`
	Code    int    `json:"code"`
}

// misdirected has the shape of the API's errors: who comes with a wrong Host
// wanted the API.
type misdirected struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e sandboxError) status() int  { return e.Code }
func (e reservedRoute) status() int { return e.Code }
func (e misdirected) status() int   { return e.Code }

func writeError(w http.ResponseWriter, e interface{ status() int }) {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // only our own types come here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.status())
	_, _ = w.Write(body)
}
