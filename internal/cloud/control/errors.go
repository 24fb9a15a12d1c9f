package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	// maxMessage bounds the text, in bytes, that an error answer repeats from a request.
	maxMessage = 300
	// maxReason bounds the cause in an error answer, in bytes. It leaves space for a chain of
	// calls with their arguments, because the last call names the remedy.
	maxReason = 2 << 10
)

// apiError is the error body of the API. It repeats the HTTP status as Code, because some
// clients only look at the body.
type apiError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
	// Reason and EndedAt describe how a sandbox ended. The service does not have these fields.
	Reason  lifecycle.Reason `json:"reason,omitempty"`
	EndedAt *time.Time       `json:"endedAt,omitempty"`
}

func (e *apiError) Error() string { return fmt.Sprintf("control: %d: %s", e.Code, e.Message) }

func errorf(status int, format string, args ...any) error {
	return &apiError{Code: status, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return errorf(http.StatusBadRequest, "validation error: "+format, args...)
}

// notThere returns the error for a request that names an object which does not exist. Like the
// errors of the function invalid, it has the status 400.
func notThere(errorCode, format string, args ...any) error {
	return &apiError{Code: http.StatusBadRequest, Message: "validation error: " + fmt.Sprintf(format, args...), ErrorCode: errorCode}
}

// unsupported returns the error for a field that the real service supports and this cloud does
// not. If the cloud ignored the field, clients would believe that it supports the field.
func unsupported(field string) error {
	return errorf(http.StatusBadRequest, "not supported by this local cloud: the field %s", field)
}

// bounded shortens untrusted text for a message.
func bounded(s string) string { return clip.Text(s, maxMessage) }

// reason returns the text of an error, shortened for a message.
func reason(err error) string { return clip.Text(err.Error(), maxReason) }

// answerFor converts an error of the registry to an answer of the API.
func answerFor(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*lifecycle.NotFoundError](err); ok {
		return notFound(e)
	}
	if e := unsaved(err); e != nil {
		return e
	}
	if e, ok := errors.AsType[*lifecycle.StateError](err); ok {
		return conflict(e)
	}
	if e, ok := errors.AsType[*templates.Error](err); ok {
		return &apiError{Code: refused[e.Kind], Message: e.Error()}
	}
	if e := buildError(err); e != nil {
		return e
	}
	if e := noRoom(err); e != nil {
		return e
	}
	if e, ok := errors.AsType[*engine.InUseError](err); ok {
		return inUse(e)
	}
	if e := failed(err); e != nil {
		return e
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return &k.answer
		}
	}
	if e := full(err); e != nil {
		return e
	}
	return &apiError{Code: http.StatusInternalServerError, Message: reason(err), ErrorCode: "internal_server_error"}
}

// refused maps kinds of errors about templates to HTTP statuses.
var refused = map[templates.Kind]int{
	templates.NotFound: http.StatusNotFound,
	templates.Invalid:  http.StatusBadRequest,
	templates.BuiltIn:  http.StatusForbidden,
	templates.Conflict: http.StatusConflict,
	templates.Full:     http.StatusTooManyRequests,
}

// known lists the answers for errors without fields. If an error matches several entries, the first
// of them is the answer. For example, a call that waited for a closing cloud may also have reached
// its deadline.
var known = []struct {
	err    error
	answer apiError
}{
	{lifecycle.ErrClosed, apiError{Code: http.StatusServiceUnavailable, Message: "the local cloud is closing"}},
	{lifecycle.ErrKeyReused, apiError{Code: http.StatusUnprocessableEntity, Message: protocol.HeaderIdempotency + " was used for a different request"}},
	{lifecycle.ErrUnhealthy, apiError{
		Code:    http.StatusServiceUnavailable,
		Message: "envd in the sandbox does not answer, so it was not paused: it runs on; a pause with memory that does not require a healthy guest would pause it",
	}},
	{lifecycle.ErrUnresponsive, apiError{
		Code: http.StatusConflict, ErrorCode: "sandbox_snapshot_guest_agent_unresponsive",
		Message: "envd in the sandbox did not answer when it was paused, and would not if its memory was resumed: resume it with memory false",
	}},
	{layers.ErrGone, apiError{Code: http.StatusNotFound, Message: "the template has just been deleted"}},
	{context.DeadlineExceeded, apiError{Code: http.StatusGatewayTimeout, Message: fmt.Sprintf("not done within %v: it goes on, so look at the sandbox and ask again", requestDeadline)}},
}

func notFound(e *lifecycle.NotFoundError) *apiError {
	message := fmt.Sprintf("Sandbox \"%s\" doesn't exist or you don't have access to it", bounded(e.ID))
	switch {
	case e.Paused:
		message = fmt.Sprintf("Sandbox \"%s\" is not running: it is paused, and connect resumes it", bounded(e.ID))
	case e.How != "": // the id was known only to clients of the sandbox
		message += fmt.Sprintf(": %s at %s", e.How, e.EndedAt.Format(time.RFC3339))
		return &apiError{Code: http.StatusNotFound, Message: message, Reason: e.Reason, EndedAt: &e.EndedAt}
	}
	return &apiError{Code: http.StatusNotFound, Message: message}
}

func conflict(e *lifecycle.StateError) *apiError {
	is := map[lifecycle.State]string{
		lifecycle.Running: "already running", lifecycle.Paused: "already paused",
		lifecycle.Pausing: "being paused", lifecycle.Snapshotting: "being snapshotted", lifecycle.Resizing: "being resized", lifecycle.Resuming: "being resumed", lifecycle.Killing: "being killed",
	}[e.State]
	return &apiError{Code: http.StatusConflict, Message: fmt.Sprintf("Sandbox %s is %s", bounded(e.ID), is)}
}

// inUse returns the answer for a limit below the use.
func inUse(e *engine.InUseError) *apiError {
	more := ""
	if e.Resource == "memory" {
		more = ", files in memory included"
	}
	return &apiError{Code: http.StatusConflict, Message: fmt.Sprintf(
		"the sandbox uses %d bytes of %s%s, which is more than the %d bytes asked for: it keeps its resources", e.Used, e.Resource, more, e.Most)}
}

// noRoom returns the answer for a limit that was reached. The answer has no Retry-After. With a
// Retry-After, clients would wait silently, and users would not learn of the limit.
func noRoom(err error) *apiError {
	if e, ok := errors.AsType[*lifecycle.LimitError](err); ok {
		return &apiError{Code: http.StatusTooManyRequests, Message: fmt.Sprintf("you have reached the maximum number of concurrent sandboxes, %d: kill one that is not needed, or start the local cloud with more (e2bctl local up --max-sandboxes, local.WithMaxSandboxes in Go)", e.Max)}
	}
	if e, ok := errors.AsType[*lifecycle.FrozenLimitError](err); ok {
		room := fmt.Sprintf("%d sandboxes", e.Max)
		if e.Memory > 0 {
			room += fmt.Sprintf(" or %d MiB", e.Memory>>20)
		}
		return &apiError{
			Code: http.StatusServiceUnavailable,
			Message: fmt.Sprintf("paused sandboxes already keep as much memory as they may, %s, so this one was not paused: it runs on; "+
				`pause it with mode="filesystem" (memory false), which keeps only its files, or resume or kill others`, room),
		}
	}
	if e, ok := errors.AsType[*lifecycle.KeptLimitError](err); ok {
		return &apiError{
			Code:    http.StatusServiceUnavailable,
			Message: fmt.Sprintf("the files of %d sandboxes are kept, which is the limit, so this one was not paused: it runs on; kill paused sandboxes that are no longer needed", e.Max),
		}
	}
	return nil
}

// unsaved returns the answer for a sandbox that could not be kept because a disk is full.
func unsaved(err error) *apiError {
	e, ok := errors.AsType[*lifecycle.SaveError](err)
	if !ok || !shortage.IsDisk(e.Err) {
		return nil
	}
	return &apiError{
		Code: http.StatusInsufficientStorage, ErrorCode: saveFailed,
		Message: "The disk of the state directory is full, so the sandbox could not be kept: " + reason(e.Err) +
			"; the sandbox is as it was before: " + makeRoom,
	}
}

// makeRoom describes the remedy for a full disk.
const makeRoom = "make room on that disk, or remove snapshots, templates and paused sandboxes that are no longer needed, and try again"

// full returns the answer for any other failure caused by a full disk.
func full(err error) *apiError {
	if !shortage.IsDisk(err) {
		return nil
	}
	answer := &apiError{
		Code:    http.StatusInsufficientStorage,
		Message: "The disk of the state directory is full: " + reason(err) + "; " + makeRoom,
	}
	if e, ok := errors.AsType[*lifecycle.LaunchError](err); ok {
		answer.ErrorCode = "sandbox_create_failed"
		so := "Failed to create sandbox"
		if e.Resumed {
			so = "Failed to resume sandbox, which is still paused"
		}
		answer.Message = so + ": the disk of the state directory or of the running sandboxes is full: " + reason(e.Err) + "; " + makeRoom
	}
	return answer
}

const saveFailed = "sandbox_save_failed"

// failed returns the answer for an error that the client did not cause.
func failed(err error) *apiError {
	if errors.Is(err, errors.ErrUnsupported) {
		return &apiError{Code: http.StatusNotImplemented, Message: "not supported by the isolation of this local cloud: " + reason(err)}
	}
	if e, ok := errors.AsType[*lifecycle.RefusedError](err); ok {
		if e.Forbidden {
			return &apiError{Code: http.StatusForbidden, Message: clip.Text(e.Reason, maxReason)}
		}
		answer := &apiError{Code: http.StatusBadRequest, Message: "validation error: " + clip.Text(e.Reason, maxReason)}
		if e.Unsupported {
			answer.ErrorCode = protocol.CodeUnsupported
		}
		return answer
	}
	if e, ok := errors.AsType[*lifecycle.SaveError](err); ok {
		if errors.Is(e, lifecycle.ErrMemory) {
			return &apiError{
				Code: http.StatusInternalServerError, ErrorCode: saveFailed,
				Message: "The sandbox could not be kept: " + reason(e.Err) + `; it is as it was before: mode="filesystem" (memory false) keeps only its files`,
			}
		}
		return &apiError{
			Code: http.StatusInternalServerError, ErrorCode: saveFailed,
			Message: "The files of the sandbox could not be kept: " + reason(e.Err) + "; the sandbox is as it was before: make room on the disk, or kill paused sandboxes that are no longer needed, and try again",
		}
	}
	if e, ok := errors.AsType[*lifecycle.LaunchError](err); ok {
		if answer := full(err); answer != nil {
			return answer
		}
		message := "Failed to create sandbox: "
		if e.Resumed {
			message = "Failed to resume sandbox, which is still paused: "
		}
		return &apiError{
			Code: http.StatusInternalServerError, ErrorCode: "sandbox_create_failed",
			Message: message + reason(e.Err),
		}
	}
	return nil
}

// writeJSON answers with v. It always sets Content-Length, because some clients cannot parse an
// empty chunked body. No cache may keep an answer: many have a key, a token or a signed address.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: only types of this package are passed
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func noContent(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
