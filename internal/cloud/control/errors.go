package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxMessage bounds how much of a request an error answer repeats.
const maxMessage = 300

// apiError is the error body of the API. Clients look at the code in the body,
// not only at the status, so the body always repeats it.
type apiError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

func (e *apiError) Error() string { return fmt.Sprintf("control: %d: %s", e.Code, e.Message) }

func errorf(status int, format string, args ...any) error {
	return &apiError{Code: status, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return errorf(http.StatusBadRequest, "validation error: "+format, args...)
}

// unsupported refuses a field that the real service supports and this one does
// not: ignoring it would be pretending to support it.
func unsupported(field string) error {
	return errorf(http.StatusBadRequest, "not supported by this local cloud: the field %s", field)
}

// bounded shortens text from outside for a message.
func bounded(s string) string { return clip.Text(s, maxMessage) }

// answerFor converts an error of the registry into the answer of the API.
func answerFor(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*lifecycle.NotFoundError](err); ok {
		message := fmt.Sprintf("Sandbox \"%s\" doesn't exist or you don't have access to it", bounded(e.ID))
		if e.How != "" { // only clients that knew the id get here
			message += ": " + e.How
		}
		return &apiError{Code: http.StatusNotFound, Message: message}
	}
	if e, ok := errors.AsType[*lifecycle.LimitError](err); ok {
		// No Retry-After: a client that silently waits would hide this.
		return &apiError{Code: http.StatusTooManyRequests, Message: fmt.Sprintf("you have reached the maximum number of concurrent sandboxes, %d", e.Max)}
	}
	if e, ok := errors.AsType[*lifecycle.RefusedError](err); ok {
		return &apiError{Code: http.StatusBadRequest, Message: "validation error: " + bounded(e.Reason)}
	}
	if e, ok := errors.AsType[*lifecycle.LaunchError](err); ok {
		return &apiError{
			Code: http.StatusInternalServerError, ErrorCode: "sandbox_create_failed",
			Message: "Failed to create sandbox: " + bounded(e.Err.Error()),
		}
	}
	switch {
	case errors.Is(err, lifecycle.ErrClosed):
		return &apiError{Code: http.StatusServiceUnavailable, Message: "the local cloud is closing"}
	case errors.Is(err, lifecycle.ErrKeyReused):
		return &apiError{Code: http.StatusUnprocessableEntity, Message: protocol.HeaderIdempotency + " was used for a different request"}
	}
	return &apiError{Code: http.StatusInternalServerError, Message: bounded(err.Error()), ErrorCode: "internal_server_error"}
}

// writeJSON answers with v. The length is always stated: some clients cannot
// parse an empty chunked body.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // only our own types are passed here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func noContent(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
