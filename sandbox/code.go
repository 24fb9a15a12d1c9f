package sandbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// CodeTransport is how code reaches the kernel.
type CodeTransport string

// The ways to the kernel.
const (
	// CodeTransportAuto is to find out.
	CodeTransportAuto CodeTransport = ""
	// CodeTransportWebsocket is the kernel's own protocol: input, updates of
	// displays and interrupts work.
	CodeTransportWebsocket CodeTransport = "websocket"
	// CodeTransportHTTP is one request a call: code cannot ask for input.
	CodeTransportHTTP CodeTransport = "http"
)

// RunCodeParams say how to run code. The zero value runs it in the default
// context.
type RunCodeParams struct {
	// Stdout and Stderr get what the code prints as it comes, from the
	// goroutine that called; an error of theirs interrupts the code. May be nil.
	Stdout, Stderr io.Writer
	// OnResult is told each result as it comes, from the goroutine that called,
	// and once more when the code updates it. May be nil.
	OnResult func(Result)
	// Stdin answers when the code asks for input; nil means that it cannot.
	// [io.EOF] is an end of file to the code; any other error interrupts it and
	// is returned.
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Envs are environment variables for this call alone.
	Envs map[string]string
	// Context is the id of the context to run in; empty means the default one of
	// the language. With an id, Language must be empty.
	Context string
	// Language is that of the code; empty means Python.
	Language string
	// Silent runs the code without counting it and without a result.
	Silent bool
	// MaxOutput is how many bytes of each stream the execution keeps; 0 means
	// [DefaultMaxOutput], less than 0 none.
	MaxOutput int
}

// Execution is what running code gave.
type Execution struct {
	// Results are the displayed values in order, and the value of the last
	// expression.
	Results []Result
	// Stdout and Stderr are what was printed, as far as it is kept; where bytes
	// were dropped, a line says so.
	Stdout, Stderr string
	// StdoutDropped and StderrDropped count the bytes that are not kept.
	StdoutDropped, StderrDropped int64
	// Error is the exception that ended the code; nil when there was none.
	Error *ExecutionError
	// Count is the number of the execution in its context; 0 when silent.
	Count int
}

// Text is the text of the value of the last expression; empty when there is
// none. See [Result.Text].
func (e *Execution) Text() string {
	if e != nil {
		for _, r := range e.Results {
			if r.Main {
				return r.Text()
			}
		}
	}
	return ""
}

// Result is one value in all representations that the kernel gave.
type Result struct {
	// Main tells the value of the last expression from displayed ones.
	Main bool
	// Data maps a MIME type to its value: a JSON string for text, and for
	// images their base64; any JSON for JSON types.
	Data map[string]json.RawMessage
	// DisplayID is the name by which the code may update it; mostly empty.
	DisplayID string
}

// Formats are its MIME types, sorted.
func (r Result) Formats() []string { return slices.Sorted(maps.Keys(r.Data)) }

// Text is the plain text. As E2B has it, the text of a string is without its
// quotes; Data has it as it came.
func (r Result) Text() string {
	text := r.text("text/plain")
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		return text[1 : n-1]
	}
	return text
}

// HTML is the HTML, empty when there is none.
func (r Result) HTML() string { return r.text("text/html") }

// Markdown is the Markdown, empty when there is none.
func (r Result) Markdown() string { return r.text("text/markdown") }

// LaTeX is the LaTeX, empty when there is none.
func (r Result) LaTeX() string { return r.text("text/latex") }

// SVG is the SVG image's XML, empty when there is none.
func (r Result) SVG() string { return r.text("image/svg+xml") }

// JSON is the JSON value, nil when there is none.
func (r Result) JSON() json.RawMessage { return r.Data["application/json"] }

// PNG is the PNG image; ok is false when there is none.
func (r Result) PNG() (image []byte, ok bool) { return r.binary("image/png") }

// JPEG is the JPEG image; ok is false when there is none.
func (r Result) JPEG() (image []byte, ok bool) { return r.binary("image/jpeg") }

// PDF is the PDF document; ok is false when there is none.
func (r Result) PDF() (document []byte, ok bool) { return r.binary("application/pdf") }

func (r Result) text(mime string) string {
	var s string
	if json.Unmarshal(r.Data[mime], &s) != nil {
		return ""
	}
	return s
}

func (r Result) binary(mime string) ([]byte, bool) {
	if r.Data[mime] == nil {
		return nil, false
	}
	// Kernels break the lines of base64, and end it with one.
	text := strings.NewReplacer("\n", "", "\r", "").Replace(r.text(mime))
	data, err := base64.StdEncoding.DecodeString(text)
	return data, err == nil && len(data) > 0
}

// ExecutionError is an exception that ended code.
type ExecutionError struct {
	// Name is its class, such as "ZeroDivisionError".
	Name string
	// Value is its message.
	Value string
	// Traceback is without colours.
	Traceback string
	// Line is the line of the code where it was raised, from 1; 0 when unknown.
	Line int
}

func (e *ExecutionError) Error() string {
	text := shorten(e.Name+": "+e.Value, 512)
	if e.Line > 0 {
		return fmt.Sprintf("%s (line %d)", text, e.Line)
	}
	return text
}

// codeRunner is a sandbox's way to its kernels.
type codeRunner struct {
	sb     *Sandbox
	forced CodeTransport
}

func (c *codeRunner) init(sb *Sandbox, cfg sandboxConfig) { c.sb, c.forced = sb, cfg.code }

func (c *codeRunner) close() {}

// CodeTransport is the way RunCode takes; [CodeTransportAuto] as long as it has
// not been found out.
func (sb *Sandbox) CodeTransport() CodeTransport { return sb.code.forced }

// RunCode runs code in a context of the sandbox, where earlier code's variables
// are, and waits for its end. An exception is an [*ExecutionError]; the
// execution is complete then, too. With any other error it has what came, or is
// nil when the code did not start. When ctx ends, RunCode returns at once and
// the code is interrupted. Code is never run twice.
func (sb *Sandbox) RunCode(_ context.Context, _ string, _ *RunCodeParams) (*Execution, error) {
	return nil, errors.New("sandbox: run code: not yet")
}
