package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

// Result is one value in all representations that the kernel sent. The methods of Result decode the
// representations. For a representation that is missing or cannot be decoded, they return the zero
// value. Data contains the representations undecoded.
type Result struct {
	// Main reports whether the result is the value of the last expression. It is false for displayed
	// values.
	Main bool
	// Data maps MIME types to values: a JSON string for text, a JSON string of base64 for
	// images, and any JSON for JSON types.
	Data map[string]json.RawMessage
	// DisplayID is the id with which code can update the displayed value. It is usually empty.
	DisplayID string
}

// Formats returns the MIME types of the value, sorted.
func (r Result) Formats() []string { return slices.Sorted(maps.Keys(r.Data)) }

// Text returns the plain text. The text of a string has no quotes, as in E2B's SDKs; Data
// contains the original.
func (r Result) Text() string {
	text := r.text("text/plain")
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		return text[1 : n-1]
	}
	return text
}

// HTML returns the HTML, or "" if there is none.
func (r Result) HTML() string { return r.text("text/html") }

// Markdown returns the Markdown, or "" if there is none.
func (r Result) Markdown() string { return r.text("text/markdown") }

// LaTeX returns the LaTeX, or "" if there is none.
func (r Result) LaTeX() string { return r.text("text/latex") }

// JavaScript returns the JavaScript, or "" if there is none.
func (r Result) JavaScript() string { return r.text("application/javascript") }

// SVG returns the SVG image's XML, or "" if there is none.
func (r Result) SVG() string { return r.text("image/svg+xml") }

// JSON returns the JSON value, or nil if there is none.
func (r Result) JSON() json.RawMessage { return r.Data["application/json"] }

// PNG returns the PNG image, or nil if there is none.
func (r Result) PNG() []byte { return r.binary("image/png") }

// JPEG returns the JPEG image, or nil if there is none.
func (r Result) JPEG() []byte { return r.binary("image/jpeg") }

// PDF returns the PDF document, or nil if there is none.
func (r Result) PDF() []byte { return r.binary("application/pdf") }

// Chart returns the data of a figure. It returns nil if there is no figure or its data could
// not be read. For malformed data it returns a [*chart.Unknown] with the reason.
func (r Result) Chart() chart.Chart {
	data, ok := r.Data[chart.MIMEType]
	if !ok {
		return nil
	}
	c, _ := chart.Parse(data)
	return c
}

// DataFrame returns the data of a data frame, or nil if there is none.
func (r Result) DataFrame() *chart.DataFrame {
	data, ok := r.Data[chart.MIMETypeDataFrame]
	if !ok {
		return nil
	}
	frame, err := chart.ParseDataFrame(data)
	if err != nil {
		return nil
	}
	return frame
}

func (r Result) text(mime string) string {
	var s string
	if json.Unmarshal(r.Data[mime], &s) != nil {
		return ""
	}
	return s
}

func (r Result) binary(mime string) []byte {
	if r.Data[mime] == nil {
		return nil
	}
	// Kernels break base64 into lines, and end it with a newline.
	text := strings.NewReplacer("\n", "", "\r", "").Replace(r.text(mime))
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) == 0 {
		return nil
	}
	return data
}

// ExecutionError is an exception that ended code.
type ExecutionError struct {
	// Name is the class of the exception, such as "ZeroDivisionError".
	Name string
	// Value is the message of the exception.
	Value string
	// Traceback is the traceback, without colours and without the frames of package agent's
	// modules.
	Traceback string
	// Line is the line of the code that raised the exception, counted from 1; 0 if unknown.
	Line int
}

func (e *ExecutionError) Error() string {
	text := clip.Text(strings.TrimSuffix(e.Name+": "+strings.ReplaceAll(e.Value, "\n", " "), ": "), 512)
	// The texts of syntax errors and of a run's guard already contain the line.
	if e.Line > 0 && !strings.HasSuffix(e.Value, fmt.Sprintf(", line %d)", e.Line)) {
		return fmt.Sprintf("%s (line %d)", text, e.Line)
	}
	return text
}

var (
	// ansi matches escape sequences: colours, links, titles and others.
	ansi = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])`)
	// ownFrame matches the text that IPython and Python print for a stack frame of this project's
	// modules. Eval and the runs of package agent place these modules in the kernel, without their
	// source code.
	ownFrame = lazyregexp.New(`(?m)^[ |+]*File "?<_e2bctl_\w+>"?(?::|, line )\d+.*\n(?:[ |]*(?:-+> ?)?\d+ 'Could not get source.*\n)?\n?`)
	// cellLine matches the texts with which Python and IPython name the cell and the line of code that
	// this package sent. In a group of exceptions a margin precedes the text. Over HTTP the beginning
	// of the traceback precedes the text, without a line break.
	cellLine = lazyregexp.New(`(?m)(?:^|last\))[ |+]*(Cell In *\[\d+\]|Input In *\[\d+\]|File "?<[^>]*>"?)(?:, (?:in <cell )?line:? |:)(\d+)`)
)

// newExecutionError converts an error of a kernel to readable form.
func newExecutionError(name, value, traceback string) *ExecutionError {
	e := &ExecutionError{Name: name, Value: value, Traceback: ownFrame().ReplaceAllString(ansi().ReplaceAllString(traceback, ""), "")}
	// The outermost frame is in this code, others may be in earlier code. The code determines
	// the message at the end, which may look like a frame.
	frames := cellLine().FindAllStringSubmatch(strings.TrimSuffix(strings.TrimSpace(e.Traceback), strings.TrimSpace(value)), -1)
	for _, frame := range frames {
		if frame[1] == frames[0][1] {
			e.Line, _ = strconv.Atoi(frame[2])
		}
	}
	return e
}
