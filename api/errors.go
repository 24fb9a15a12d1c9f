package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// These are classes of errors, for use with errors.Is. An [*Error] matches the classes that
// belong to its status.
var (
	// ErrNotFound means that the object does not exist or belongs to another team (404). If the
	// missing object was named in the body of the request, the status is 400.
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized means that the key is missing, malformed or unknown (401).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrForbidden means that the key is not allowed to make this call (403).
	ErrForbidden = errors.New("forbidden")
	// ErrConflict means that the object's present state does not allow the call (409).
	ErrConflict = errors.New("conflict")
	// ErrRateLimited means too many requests or too many sandboxes (429).
	ErrRateLimited = errors.New("rate limited")
	// ErrInvalidArgument means that the service refuses the request as invalid
	// (400, 422).
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrTimeout means that no answer came in time: status 408 or 504, an expired deadline of
	// the caller, or a service slower than the client's own limits.
	ErrTimeout = errors.New("timeout")
	// ErrUnavailable means that the service is busy or could not be reached (502, 503, or no
	// answer at all).
	ErrUnavailable = errors.New("unavailable")
	// ErrNothingListens means that a port of this machine refused the connection. That happens
	// when a local cloud has ended. Such an error is also [ErrUnavailable].
	ErrNothingListens = errors.New("nothing listens at this address")
	// ErrRetryable means that the same call can succeed later. It does not mean
	// that the failed call had no effect.
	ErrRetryable = errors.New("retryable")

	// ErrNoAPIKey means that no source has an API key.
	ErrNoAPIKey = errors.New("api: no API key: set E2B_API_KEY, or use a local cloud (--local of e2bctl, local.Start in Go)")
	// ErrInvalidKey means that the value cannot be a key. The message never
	// contains the key.
	ErrInvalidKey = errors.New("api: invalid API key")
	// ErrUntrustedAddress means that an address comes from a less trusted source
	// than the key that would be sent to it.
	ErrUntrustedAddress = errors.New("api: untrusted address")
)

// Error describes a call that failed. A StatusCode of 0 means that the service did not answer.
type Error struct {
	// Method and Path are those of the request; Path has no query.
	Method, Path string
	// StatusCode is the HTTP status of the answer. Zero means that no answer came;
	// errors.Unwrap then returns the cause.
	StatusCode int
	// Code is the service's code for the error (error_code); often empty.
	Code string
	// Message is the service's message, at most 2 KiB, without control
	// characters.
	Message string
	// RequestID is the service's id of the request or trace; often empty.
	RequestID string
	// RetryAfter is the wait that the service asks for; 0 if it asks for none.
	RetryAfter time.Duration
	// Reason is the reason for the end of the sandbox. It is empty if the service never had the
	// sandbox, or does not report a reason. E2B's own service reports none.
	Reason EndReason
	// EndedAt is the time when the sandbox ended; zero if the service does not report it.
	EndedAt time.Time

	waitNamed    bool   // the service sent the header Retry-After; RetryAfter may still be 0
	advice       string // the service's header Should-Retry, in lower case; often empty
	routeMissing bool
	conflict     bool // the answer has the meaning of 409, whatever its status
	missing      bool // the answer has the meaning of 404, whatever its status
	cause        error
}

// EndReason is the reason for the end of a sandbox. A service may use values other than the
// constants here.
type EndReason string

// These are the reasons for the end of a sandbox.
const (
	EndExpired     EndReason = "expired"       // the lifetime of the sandbox was over
	EndIdle        EndReason = "idle"          // nothing used the sandbox for its idle timeout
	EndKilled      EndReason = "killed"        // a client killed the sandbox
	EndOutOfMemory EndReason = "out_of_memory" // the sandbox exceeded its memory limit
	EndDied        EndReason = "died"          // the sandbox ended by itself
	EndServerGone  EndReason = "server_gone"   // the server or machine of the sandbox ended
)

// These are the values of [Error].Code when a request for a sandbox names a volume or secret that
// does not exist. A local cloud sends them with status 400, as E2B's service does.
const (
	CodeVolumeNotFound = "volume_not_found"
	CodeSecretNotFound = "secret_not_found"
)

// NewError returns the error for a call that got no answer.
func NewError(method, path string, cause error) *Error {
	return &Error{Method: method, Path: path, cause: cause}
}

// ResponseError returns the error for an answer with the given status and header. body is the
// first part of the answer's body.
func ResponseError(method, path string, status int, header http.Header, body []byte) *Error {
	e := &Error{Method: method, Path: path, StatusCode: status}
	e.RetryAfter, e.waitNamed = retryAfter(header)
	e.advice = strings.ToLower(strings.TrimSpace(header.Get("Should-Retry")))
	for _, name := range []string{"X-Request-Id", "X-E2b-Trace-Id"} {
		if e.RequestID == "" {
			e.RequestID = clip.Line(header.Get(name), 128)
		}
	}
	answer := errorBody(body)
	e.Code, e.Message = clip.Line(answer.ErrorCode, 64), clip.Line(answer.Message, maxMessage)
	e.missing = status == http.StatusBadRequest && (e.Code == CodeVolumeNotFound || e.Code == CodeSecretNotFound)
	if status == http.StatusNotFound {
		reason, _ := answer.Reason.(string)
		endedAt, _ := answer.EndedAt.(string)
		e.Reason = EndReason(clip.Line(reason, 64))
		e.EndedAt, _ = time.Parse(time.RFC3339, endedAt) // EndedAt stays zero if it is not a time
	}
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

// maxMessage limits the service's message in an error, in bytes. The limit is generous, because a
// message often ends with advice for the user.
const maxMessage = 2 << 10

// answerBody is the body of an error answer. In an answer of the service, Code is the status as a
// number. In an answer to an RPC of envd, Code is a name.
type answerBody struct {
	Code      json.RawMessage `json:"code"`
	Message   string          `json:"message"`
	ErrorCode string          `json:"error_code"`
	// Reason and EndedAt are used only in answers of our own services. In the answers of other
	// services these fields may have another meaning.
	Reason  any `json:"reason"`
	EndedAt any `json:"endedAt"`
}

func errorBody(body []byte) (a answerBody) {
	if json.Unmarshal(body, &a) != nil {
		return answerBody{}
	}
	return a
}

// Error returns the method, path, status and message, never a header or a body.
func (e *Error) Error() string {
	switch {
	case e.refusedHere():
		return fmt.Sprintf("api: %s %s: no answer: %v: nothing listens there; a local cloud that did has ended: start another and use its variables, or unset E2B_API_URL", e.Method, e.Path, e.cause)
	case e.StatusCode == 0:
		return fmt.Sprintf("api: %s %s: no answer: %v", e.Method, e.Path, e.cause)
	case e.Code != "":
		return fmt.Sprintf("api: %s %s: %d %s: %s", e.Method, e.Path, e.StatusCode, e.Code, e.Message)
	}
	return fmt.Sprintf("api: %s %s: %d: %s", e.Method, e.Path, e.StatusCode, e.Message)
}

// refusedHere reports whether a port of this machine refused the connection.
func (e *Error) refusedHere() bool {
	failed, ok := errors.AsType[*net.OpError](e.cause)
	if !ok || e.StatusCode != 0 || !errors.Is(failed, syscall.ECONNREFUSED) {
		return false
	}
	to, ok := failed.Addr.(*net.TCPAddr)
	return ok && to.IP.IsLoopback()
}

// Unwrap returns the cause of a call that got no answer, and nil otherwise.
func (e *Error) Unwrap() error { return e.cause }

// RouteMissing reports whether the service does not have the route at all. The service is then an
// older version or another implementation. RouteMissing returns false if only the object in the
// path is missing.
func (e *Error) RouteMissing() bool { return e.routeMissing }

// Is reports whether e belongs to target, a class of errors of this package such as [ErrNotFound].
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.StatusCode == http.StatusNotFound || e.missing
	case ErrConflict:
		return e.StatusCode == http.StatusConflict || e.conflict
	case ErrRetryable:
		return e.retryable()
	case errors.ErrUnsupported:
		return e.Code == protocol.CodeUnsupported
	case ErrNothingListens:
		return e.refusedHere()
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
	http.StatusUnprocessableEntity: ErrInvalidArgument,
	http.StatusTooManyRequests:     ErrRateLimited,
}

// conflictOf marks an error of status 400 as a conflict with the present state. Use it only for
// calls for which a conflict is the only possible reason of status 400.
func conflictOf(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.StatusCode == http.StatusBadRequest {
		e.conflict = true
	}
	return err
}

// missingOf marks an error of status 400 as a missing object. Use it only for calls for which a
// missing object is the only possible reason of status 400.
func missingOf(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.StatusCode == http.StatusBadRequest {
		e.missing = true
	}
	return err
}

// unanswered reports whether the peer was not reached or went away. It returns false if the
// caller gave up or the peer was too slow.
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
