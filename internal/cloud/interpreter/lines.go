//go:build linux

package interpreter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

type countLine struct {
	Type  string `json:"type"`
	Count int    `json:"execution_count"`
}

// queuedLine tells how many executions come first. The service has no such line;
// clients ignore types that they do not know.
type queuedLine struct {
	Type     string `json:"type"`
	Position int    `json:"position"`
}

type streamLine struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Timestamp string `json:"timestamp"`
}

type errorLine struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// resultFields maps MIME types to the fields of a result; all others are extra.
var resultFields = map[string]string{
	"text/plain":             "text",
	"text/html":              "html",
	"text/markdown":          "markdown",
	"image/svg+xml":          "svg",
	"image/png":              "png",
	"image/jpeg":             "jpeg",
	"application/pdf":        "pdf",
	"text/latex":             "latex",
	"application/json":       "json",
	"application/javascript": "javascript",
	"e2b/data":               "data",
	"e2b/chart":              "chart",
}

func resultLine(data map[string]json.RawMessage, isMain bool) map[string]any {
	extra := map[string]json.RawMessage{}
	line := map[string]any{"type": "result", "is_main_result": isMain, "extra": extra}
	for mime, value := range data {
		field, known := resultFields[mime]
		var text string
		switch {
		case !known:
			extra[mime] = value
		case isNull(value): // clients take the first field that is there
		case field == "text" && json.Unmarshal(value, &text) == nil:
			line[field] = unquote(text)
		default:
			line[field] = value
		}
	}
	return line
}

// unquote takes one pair of quotes from a text that begins and ends with the
// same one, as the service does: the repr of a string is the string.
func unquote(text string) string {
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		return text[1 : n-1]
	}
	return text
}

// asciiLine is v as one line of JSON in ASCII: clients decode chunk by chunk,
// and some split lines at U+2028.
func asciiLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	data := buf.Bytes()
	if !bytes.ContainsFunc(data, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return data, nil
	}
	out := make([]byte, 0, len(data)+len(data)/2)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		data = data[size:]
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out, nil
}
