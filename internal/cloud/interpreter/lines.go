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

// queuedLine contains the number of executions that run before the client's execution. E2B's service
// does not send such a line. Clients ignore lines of unknown types.
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

// resultLine contains a result. The fields have the same order as in E2B's service. Fields without a
// value are left out.
type resultLine struct {
	Type       string                     `json:"type"`
	Text       any                        `json:"text,omitempty"`
	HTML       json.RawMessage            `json:"html,omitempty"`
	Markdown   json.RawMessage            `json:"markdown,omitempty"`
	SVG        json.RawMessage            `json:"svg,omitempty"`
	PNG        json.RawMessage            `json:"png,omitempty"`
	JPEG       json.RawMessage            `json:"jpeg,omitempty"`
	PDF        json.RawMessage            `json:"pdf,omitempty"`
	LaTeX      json.RawMessage            `json:"latex,omitempty"`
	JSON       json.RawMessage            `json:"json,omitempty"`
	JavaScript json.RawMessage            `json:"javascript,omitempty"`
	Data       json.RawMessage            `json:"data,omitempty"`
	Chart      json.RawMessage            `json:"chart,omitempty"`
	Extra      map[string]json.RawMessage `json:"extra"`
	IsMain     bool                       `json:"is_main_result"`
}

func newResultLine(data map[string]json.RawMessage, isMain bool) *resultLine {
	line := &resultLine{Type: "result", Extra: map[string]json.RawMessage{}, IsMain: isMain}
	var text json.RawMessage
	fields := map[string]*json.RawMessage{
		"text/plain": &text, "text/html": &line.HTML, "text/markdown": &line.Markdown, "text/latex": &line.LaTeX,
		"image/svg+xml": &line.SVG, "image/png": &line.PNG, "image/jpeg": &line.JPEG, "application/pdf": &line.PDF,
		"application/json": &line.JSON, "application/javascript": &line.JavaScript,
		"e2b/data": &line.Data, "e2b/chart": &line.Chart,
	}
	for mime, value := range data {
		field, known := fields[mime]
		switch {
		case !known:
			line.Extra[mime] = value
		case !isNull(value): // clients use the first field that is present
			*field = value
		}
	}
	var plain string
	switch {
	case json.Unmarshal(text, &plain) == nil:
		line.Text = unquote(plain)
	case text != nil:
		line.Text = text
	}
	return line
}

// unquote removes the quotes of a text that begins and ends with the same quote, as E2B's service
// does. So the text of a string is displayed, and not its repr.
func unquote(text string) string {
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		return text[1 : n-1]
	}
	return text
}

// asciiLine returns v as one line of JSON in ASCII. ASCII is needed because clients decode each chunk
// separately, and some clients split lines at U+2028.
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
