package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxMessage bounds what an error answer repeats of a request.
const maxMessage = 300

// apiError is the error body of the API. Clients look at the code in the body,
// not only at the status, so it always repeats it.
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

// unsupported refuses a field that the real service has and this one does not
// serve: to ignore it would be to pretend.
func unsupported(field string) error {
	return errorf(http.StatusBadRequest, "not supported by this local cloud: the field %s", field)
}

// bounded shortens foreign text for a message.
func bounded(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// writeJSON answers with v. The length is always stated: some clients cannot
// parse an empty chunked body.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // only our own types come here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func noContent(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
