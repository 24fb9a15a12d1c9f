//go:build linux

package interpreter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
)

const (
	// maxBody bounds the bytes of a request's body. The body is code, which sometimes contains data.
	maxBody = 64 << 20
	// maxEcho bounds the number of bytes that an error repeats from a bad request.
	maxEcho = 1 << 10
)

// field is a field of a request's body. If the field is not required, it may be null or absent.
// take stores the value, and returns the problems of the value.
type field struct {
	name     string
	required bool
	take     func(value json.RawMessage) []problem
}

// problem is a problem of a body. It has the wording of FastAPI, because the service uses FastAPI.
type problem struct {
	Type    string            `json:"type"`
	Where   []any             `json:"loc"`
	Message string            `json:"msg"`
	Input   json.RawMessage   `json:"input"`
	Context map[string]string `json:"ctx,omitempty"`
}

// readBody reads the JSON object of a request. If there are problems, it answers with all of
// them in one 422 answer, and returns false.
func readBody(w http.ResponseWriter, r *http.Request, fields ...field) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
		return false
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "the body is incomplete")
		return false
	}
	problems := parseBody(data, fields)
	for i, p := range problems {
		problems[i].Where = append([]any{"body"}, p.Where...)
		if len(p.Input) > maxEcho {
			problems[i].Input = nil
		}
	}
	if len(problems) > 0 {
		writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": problems})
	}
	return len(problems) == 0
}

func parseBody(data []byte, fields []field) (problems []problem) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || isNull(data) {
		return []problem{{Type: "missing", Message: "Field required"}}
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(data, &object)
	if broken := (*json.SyntaxError)(nil); errors.As(err, &broken) {
		return []problem{{
			Type: "json_invalid", Where: []any{broken.Offset}, Message: "JSON decode error",
			Input: json.RawMessage("{}"), Context: map[string]string{"error": broken.Error()},
		}}
	}
	if err != nil {
		return []problem{{Type: "model_attributes_type", Message: "Input should be a valid dictionary or object to extract fields from", Input: data}}
	}
	for _, f := range fields {
		value, ok := object[f.name]
		var wrong []problem
		switch {
		case !ok && f.required:
			wrong = []problem{{Type: "missing", Message: "Field required", Input: data}}
		case ok && (f.required || !isNull(value)):
			wrong = f.take(value)
		}
		for _, p := range wrong {
			p.Where = append([]any{f.name}, p.Where...)
			problems = append(problems, p)
		}
	}
	return problems
}

func isNull(value []byte) bool { return string(value) == "null" }

// stringInto returns the take function of a field that must be a string.
func stringInto(into *string) func(json.RawMessage) []problem {
	return func(value json.RawMessage) []problem {
		if isNull(value) || json.Unmarshal(value, into) != nil {
			return []problem{{Type: "string_type", Message: "Input should be a valid string", Input: value}}
		}
		return nil
	}
}

// stringsInto returns the take function of a field that must be an object of strings.
func stringsInto(into *map[string]string) func(json.RawMessage) []problem {
	return func(value json.RawMessage) (problems []problem) {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return []problem{{Type: "dict_type", Message: "Input should be a valid dictionary", Input: value}}
		}
		*into = make(map[string]string, len(object))
		for _, name := range slices.Sorted(maps.Keys(object)) {
			var s string
			for _, p := range stringInto(&s)(object[name]) {
				p.Where = []any{name}
				problems = append(problems, p)
			}
			(*into)[name] = s
		}
		return problems
	}
}
