package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/httpwait"
)

// Classes of errors, for errors.Is. An [*Error] matches those its status says.
var (
	// ErrNotFound: no such object, or not this key's (404).
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized: the key is missing, malformed or unknown (401).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrForbidden: the key may not do this (403).
	ErrForbidden = errors.New("forbidden")
	// ErrConflict: the object's state does not allow this now (409).
	ErrConflict = errors.New("conflict")
	// ErrRateLimited: too many requests or too many sandboxes (429).
	ErrRateLimited = errors.New("rate limited")
	// ErrInvalidArgument: the service refuses the request as it is (400, 422).
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrTimeout: no answer in time (408, 504, a deadline of the caller's, or a
	// service that is slower than the client waits).
	ErrTimeout = errors.New("timeout")
	// ErrUnavailable: the service is busy, or was not reached (502, 503, or no
	// answer at all).
	ErrUnavailable = errors.New("unavailable")
	// ErrRetryable: the same call can succeed later. It never says that the
	// failed one had no effect.
	ErrRetryable = errors.New("retryable")

	// ErrNoAPIKey: no source has a key.
	ErrNoAPIKey = errors.New("api: no API key: set E2B_API_KEY, or use a local cloud (--local of e2bctl, local.Start in Go)")
	// ErrInvalidKey: the key cannot be one. The key is never in the message.
	ErrInvalidKey = errors.New("api: invalid API key")
	// ErrUntrustedAddress: an address comes from a less trusted source than the
	// key that would be sent to it.
	ErrUntrustedAddress = errors.New("api: untrusted address")
)

// Error is a call that failed. StatusCode tells whether the service answered.
type Error struct {
	// Method and Path are the request's; the path has no query.
	Method, Path string
	// StatusCode is the answer's status; 0 means that no answer came, and the
	// cause is what errors.Unwrap gives.
	StatusCode int
	// Code is the service's own name of the error (error_code), often empty.
	Code string
	// Message is the service's message, at most 512 bytes, without control
	// characters.
	Message string
	// RequestID is the service's id of the request or trace, often empty.
	RequestID string
	// RetryAfter is how long the service asks to wait; 0 when it says nothing.
	RetryAfter time.Duration

	waitNamed    bool // the service named RetryAfter, 0 included
	routeMissing bool
	cause        error
}

// NewError gives the error of a call that got no answer.
func NewError(method, path string, cause error) *Error {
	return &Error{Method: method, Path: path, cause: cause}
}

// ResponseError gives the error of an answer, from its head and the first part
// of its body.
func ResponseError(method, path string, status int, header http.Header, body []byte) *Error {
	e := &Error{Method: method, Path: path, StatusCode: status}
	e.RetryAfter, e.waitNamed = retryAfter(header)
	for _, name := range []string{"X-Request-Id", "X-E2b-Trace-Id"} {
		if e.RequestID == "" {
			e.RequestID = clip.Line(header.Get(name), 128)
		}
	}
	answer := errorBody(body)
	e.Code, e.Message = clip.Line(answer.ErrorCode, 64), clip.Line(answer.Message, maxMessage)
	e.routeMissing = status == http.StatusMethodNotAllowed ||
		status == http.StatusNotFound && (answer.Message == "" || string(answer.Code) != "404")
	if e.Message == "" && !strings.Contains(header.Get("Content-Type"), "html") {
		e.Message = clip.Line(string(body[:min(len(body), 4*maxMessage)]), maxMessage)
	}
	if e.Message == "" {
		e.Message = strings.ToLower(http.StatusText(status))
	}
	return e
}

const maxMessage = 512

// answerBody is the error body of the service. Code repeats the status as a
// number; envd's RPCs have a name there.
type answerBody struct {
	Code      json.RawMessage `json:"code"`
	Message   string          `json:"message"`
	ErrorCode string          `json:"error_code"`
}

func errorBody(body []byte) (a answerBody) {
	if json.Unmarshal(body, &a) != nil {
		return answerBody{}
	}
	return a
}

// Error gives method, path, status and message, never a header or a body.
func (e *Error) Error() string {
	switch {
	case e.StatusCode == 0:
		return fmt.Sprintf("api: %s %s: no answer: %v", e.Method, e.Path, e.cause)
	case e.Code != "":
		return fmt.Sprintf("api: %s %s: %d %s: %s", e.Method, e.Path, e.StatusCode, e.Code, e.Message)
	}
	return fmt.Sprintf("api: %s %s: %d: %s", e.Method, e.Path, e.StatusCode, e.Message)
}

// Unwrap gives the cause of a call that got no answer, nil otherwise.
func (e *Error) Unwrap() error { return e.cause }

// RouteMissing tells that the service does not know the route at all, rather
// than the object it names: it is older, or another implementation.
func (e *Error) RouteMissing() bool { return e.routeMissing }

// Is matches the classes of this package.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrRetryable:
		return e.retryable()
	case ErrTimeout:
		var timeout net.Error
		return e.StatusCode == http.StatusRequestTimeout || e.StatusCode == http.StatusGatewayTimeout ||
			errors.Is(e.cause, context.DeadlineExceeded) || errors.As(e.cause, &timeout) && timeout.Timeout()
	case ErrUnavailable:
		return e.StatusCode == http.StatusBadGateway || e.StatusCode == http.StatusServiceUnavailable || e.unanswered()
	}
	class, ok := classes[e.StatusCode]
	return ok && class == target
}

var classes = map[int]error{
	http.StatusBadRequest:          ErrInvalidArgument,
	http.StatusUnauthorized:        ErrUnauthorized,
	http.StatusForbidden:           ErrForbidden,
	http.StatusNotFound:            ErrNotFound,
	http.StatusConflict:            ErrConflict,
	http.StatusUnprocessableEntity: ErrInvalidArgument,
	http.StatusTooManyRequests:     ErrRateLimited,
}

// unanswered reports whether the peer was not reached or went away. Neither a
// caller that gives up nor a peer that is too slow is that.
func (e *Error) unanswered() bool {
	_, slow := errors.AsType[*httpwait.SlowError](e.cause)
	return e.StatusCode == 0 && !slow && !errors.Is(e.cause, context.Canceled) && !errors.Is(e.cause, context.DeadlineExceeded)
}

func (e *Error) retryable() bool {
	switch e.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return e.unanswered()
}
