package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// maxResults bounds what an execution keeps of the results: bytes, and with an
// allowance for each, number.
const (
	maxResults     = 256 << 20
	resultOverhead = 1 << 10
)

// errTooManyResults: the results are more than can be kept.
var errTooManyResults = fmt.Errorf("the results are over %d MiB", maxResults>>20)

// collector makes an [Execution] of what a kernel says.
type collector struct {
	params         *RunCodeParams
	execution      Execution
	stdout, stderr *capture
	clear          bool // the next output replaces the results
	size           int
}

func newCollector(p *RunCodeParams) *collector {
	return &collector{params: p, stdout: newCapture(p.MaxOutput), stderr: newCapture(p.MaxOutput)}
}

// finished gives the execution.
func (c *collector) finished() *Execution {
	c.execution.Stdout, c.execution.StdoutDropped = c.stdout.text(), c.stdout.dropped()
	c.execution.Stderr, c.execution.StderrDropped = c.stderr.text(), c.stderr.dropped()
	return &c.execution
}

// message reads a message of the kernel.
func (c *collector) message(m *jupyter.Message) error {
	switch m.Header.MsgType {
	case "stream":
		name, text, err := jupyter.ParseStream(m.Content)
		if err != nil {
			return malformed(m, err)
		}
		return c.stream(name, text)
	case "display_data", "update_display_data", "execute_result":
		var d jupyter.DisplayData
		if err := decode(m, &d); err != nil {
			return err
		}
		var transient struct {
			DisplayID string `json:"display_id"`
		}
		_ = json.Unmarshal(d.Transient, &transient) // absent mostly
		r := Result{Main: m.Header.MsgType == "execute_result", Data: d.Data, DisplayID: transient.DisplayID}
		if m.Header.MsgType == "update_display_data" {
			return c.update(r)
		}
		return c.result(r)
	case "clear_output":
		var clear struct {
			Wait bool `json:"wait"`
		}
		if err := decode(m, &clear); err != nil {
			return err
		}
		c.clear = true
		if !clear.Wait {
			c.output()
		}
	case "execute_input":
		var in struct {
			ExecutionCount int `json:"execution_count"`
		}
		if err := decode(m, &in); err != nil {
			return err
		}
		c.execution.Count = in.ExecutionCount
	case "error":
		var e jupyter.ErrorContent
		if err := decode(m, &e); err != nil {
			return err
		}
		c.execution.Error = newExecutionError(e.Name, e.Value, strings.Join(e.Traceback, "\n"))
	}
	return nil
}

func decode(m *jupyter.Message, to any) error {
	if err := json.Unmarshal(m.Content, to); err != nil {
		return malformed(m, err)
	}
	return nil
}

func malformed(m *jupyter.Message, err error) error {
	return fmt.Errorf("read the kernel's %s: %w", m.Header.MsgType, err)
}

// output does what a clear_output has put off.
func (c *collector) output() {
	if c.clear {
		c.clear, c.execution.Results, c.size = false, nil, 0
	}
}

func (c *collector) stream(name string, text []byte) error {
	c.output()
	kept, w := c.stdout, c.params.Stdout
	if name == "stderr" {
		kept, w = c.stderr, c.params.Stderr
	}
	if err := output(kept, w, text); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (c *collector) result(r Result) error {
	c.output()
	c.size += resultOverhead
	for _, v := range r.Data {
		c.size += len(v)
	}
	if c.size > maxResults {
		return errTooManyResults
	}
	c.execution.Results = append(c.execution.Results, r)
	c.tell(r)
	return nil
}

// update replaces the results of that name; one of an earlier execution is
// not here to be replaced, but told.
func (c *collector) update(r Result) error {
	for i, old := range c.execution.Results {
		if old.DisplayID == r.DisplayID && r.DisplayID != "" {
			for _, v := range old.Data {
				c.size -= len(v)
			}
			for _, v := range r.Data {
				c.size += len(v)
			}
			if c.size > maxResults {
				return errTooManyResults
			}
			c.execution.Results[i].Data = r.Data
			r.Main = old.Main
		}
	}
	c.tell(r)
	return nil
}

func (c *collector) tell(r Result) {
	if c.params.OnResult != nil {
		c.params.OnResult(r)
	}
}

// line is one line of the answer of /execute.
type line struct {
	Type           string                     `json:"type"`
	Text           json.RawMessage            `json:"text"`
	ExecutionCount int                        `json:"execution_count"`
	Name           string                     `json:"name"`
	Value          string                     `json:"value"`
	Traceback      string                     `json:"traceback"`
	Main           bool                       `json:"is_main_result"`
	Extra          map[string]json.RawMessage `json:"extra"`
}

// fields are the names that /execute has for MIME types.
var fields = map[string]string{
	"text": "text/plain", "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml",
	"png": "image/png", "jpeg": "image/jpeg", "pdf": "application/pdf", "latex": "text/latex",
	"json": "application/json", "javascript": "application/javascript", "data": "e2b/data", "chart": "e2b/chart",
}

// errEnd: the line that ends an execution was read.
var errEnd = io.EOF

// line reads a line of /execute; errEnd is its last.
func (c *collector) line(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("read the interpreter's answer: %w", err)
	}
	switch l.Type {
	case "stdout", "stderr":
		var s string
		if err := json.Unmarshal(l.Text, &s); err != nil {
			return fmt.Errorf("read the interpreter's answer: %w", err)
		}
		return c.stream(l.Type, []byte(s))
	case "number_of_executions":
		c.execution.Count = l.ExecutionCount
	case "result":
		var all map[string]json.RawMessage
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("read the interpreter's answer: %w", err)
		}
		r := Result{Main: l.Main, Data: map[string]json.RawMessage{}}
		for mime, v := range l.Extra {
			r.Data[mime] = v
		}
		for field, mime := range fields {
			if v, ok := all[field]; ok && string(v) != "null" {
				r.Data[mime] = v
			}
		}
		return c.result(r)
	case "error":
		switch {
		case l.Traceback == "" && l.Name == "ContextRestarting":
			_, reason, _ := strings.Cut(l.Value, "restarted: ")
			return kernelDied(reason)
		case l.Traceback == "" && (l.Name == "WebSocketError" || l.Name == "UnexpectedEndOfExecution"):
			return fmt.Errorf("%w: %s", ErrKernelLost, shorten(l.Value, 256))
		}
		c.execution.Error = newExecutionError(l.Name, l.Value, l.Traceback)
	case "end_of_execution":
		return errEnd
	}
	return nil
}
