package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

// Bounds of the number and the bytes of the results that an execution keeps. Further results are
// only counted.
const (
	maxResults     = 10_000
	maxResultBytes = 256 << 20
)

// collector builds an [Execution] from the messages of a kernel.
type collector struct {
	params    *RunCodeParams
	event     func(CodeEvent) error // receives the events; nil if there is no receiver
	execution Execution
	logs      logs
	clear     bool // the results are removed when the next output arrives
	main      bool // the results include the value of the last expression
	size      int
	// updates contains the latest content of the named displays in the results, keyed by the name of
	// the display.
	updates map[string]displayUpdate
}

// displayUpdate is the latest content of all displays with one name.
type displayUpdate struct {
	data map[string]json.RawMessage // the new content; nil: the displays keep their first content
	upTo int                        // the update applies only to the first upTo results
}

func newCollector(p *RunCodeParams) *collector {
	return &collector{params: p, logs: newLogs(p.MaxOutputBytes), execution: Execution{Timing: Timing{Asked: time.Now()}}}
}

// emit passes an event to the receiver, if there is one.
func (c *collector) emit(e CodeEvent) error {
	if c.event == nil {
		return nil
	}
	return c.event(e)
}

// finished returns the execution.
func (c *collector) finished() *Execution {
	e := &c.execution
	e.Stdout, e.StdoutDropped = c.logs.stdout.Text(), c.logs.stdout.Dropped()
	e.Stderr, e.StderrDropped = c.logs.stderr.Text(), c.logs.stderr.Dropped()
	e.Logs, e.LogsDropped = c.logs.list()
	for i := range e.Results {
		if u := c.updates[e.Results[i].DisplayID]; u.data != nil && i < u.upTo {
			e.Results[i].Data = u.data
		}
	}
	e.Timing.Finished = time.Now()
	return e
}

// queued is called with the number of executions that run before this one.
func (c *collector) queued(position int) error {
	return c.emit(StatusEvent{State: CodeQueued, Position: position})
}

// message handles a message of the kernel.
func (c *collector) message(m *jupyter.Message) error {
	switch m.Header.MsgType {
	case "stream":
		name, text, err := jupyter.ParseStream(m.Content)
		if err != nil {
			return m.Malformed(err)
		}
		return c.stream(name, text)
	case "display_data", "update_display_data", "execute_result":
		return c.display(m)
	case "clear_output":
		var clear struct {
			Wait bool `json:"wait"`
		}
		if err := m.Decode(&clear); err != nil {
			return err
		}
		c.clear = true
		if !clear.Wait {
			c.output()
		}
		return c.emit(ClearEvent{Wait: clear.Wait})
	case "execute_input":
		var in struct {
			ExecutionCount int `json:"execution_count"`
		}
		if err := m.Decode(&in); err != nil {
			return err
		}
		c.execution.Count = in.ExecutionCount
	case "error":
		var e jupyter.ErrorContent
		if err := m.Decode(&e); err != nil {
			return err
		}
		return c.failed(newExecutionError(e.Name, e.Value, strings.Join(e.Traceback, "\n")))
	case kernelconn.MessageQueued:
		var at struct {
			Position int `json:"position"`
		}
		if err := m.Decode(&at); err != nil {
			return err
		}
		return c.queued(at.Position)
	case "status":
		switch m.Status().ExecutionState {
		case "busy":
			return c.started()
		case "idle":
			return c.emit(StatusEvent{State: CodeIdle})
		}
	case "input_request":
		var in jupyter.InputRequest
		if err := m.Decode(&in); err != nil {
			return err
		}
		return c.emit(InputEvent{Prompt: in.Prompt, Password: in.Password})
	}
	return nil
}

// display handles data that the code displays or updates.
func (c *collector) display(m *jupyter.Message) error {
	var d struct {
		Data      map[string]json.RawMessage `json:"data"`
		Transient struct {
			DisplayID string `json:"display_id"`
		} `json:"transient"`
	}
	if err := m.Decode(&d); err != nil {
		return err
	}
	r := Result{Main: m.Header.MsgType == "execute_result", Data: d.Data, DisplayID: d.Transient.DisplayID}
	if m.Header.MsgType == "update_display_data" {
		return c.update(r)
	}
	return c.result(r)
}

// started records that the kernel runs the code.
func (c *collector) started() error {
	c.execution.Timing.Started = time.Now()
	return c.emit(StatusEvent{State: CodeBusy})
}

// failed records the exception that ended the code.
func (c *collector) failed(e *ExecutionError) error {
	c.execution.Error = e
	return c.emit(ErrorEvent{e})
}

// output performs a pending clear_output, because output has arrived.
func (c *collector) output() {
	if c.clear {
		c.clear, c.main, c.execution.Results, c.updates, c.size = false, false, nil, nil, 0
	}
}

func (c *collector) stream(name string, text []byte) error {
	c.output()
	stream, w := StreamStdout, c.params.Stdout
	if name == string(StreamStderr) {
		stream, w = StreamStderr, c.params.Stderr
	}
	now := time.Now()
	c.logs.note(stream, len(text), now)
	if err := output(c.logs.stream(stream), w, text); err != nil {
		return fmt.Errorf("write %s: %w", stream, err)
	}
	if c.event == nil {
		return nil
	}
	return c.event(OutputEvent{Output{Stream: stream, Text: string(text), Time: now}})
}

// isNull reports whether a representation of a result is null. Such a representation counts as
// missing. It occurs because code may display None as a representation.
func isNull(_ string, value json.RawMessage) bool { return string(value) == "null" }

func (c *collector) result(r Result) error {
	c.output()
	maps.DeleteFunc(r.Data, isNull)
	size, e := r.size(), &c.execution
	// The value of the last expression is always kept, because there is only one.
	if first := r.Main && !c.main; first || len(e.Results) < maxResults && c.size+size <= maxResultBytes {
		c.size += size
		c.main = c.main || first
		e.Results = append(e.Results, r)
		if r.DisplayID != "" {
			if c.updates == nil {
				c.updates = map[string]displayUpdate{}
			}
			if _, known := c.updates[r.DisplayID]; !known {
				c.updates[r.DisplayID] = displayUpdate{}
			}
		}
	} else {
		e.ResultsDropped++
	}
	if c.params.OnResult != nil {
		c.params.OnResult(r)
	}
	if r.Main {
		return c.emit(ResultEvent{r})
	}
	return c.emit(DisplayEvent{r})
}

// update replaces the content of all results that have the same display name as r. If the display
// belongs to an earlier execution, update only reports the event.
func (c *collector) update(r Result) error {
	maps.DeleteFunc(r.Data, isNull)
	if old, known := c.updates[r.DisplayID]; known {
		if size := c.size + r.size() - (Result{Data: old.data}).size(); size <= maxResultBytes {
			c.size = size
			c.updates[r.DisplayID] = displayUpdate{r.Data, len(c.execution.Results)}
		} else {
			c.execution.ResultsDropped++
		}
	}
	if c.params.OnResult != nil {
		c.params.OnResult(r)
	}
	return c.emit(UpdateEvent{r})
}

// size returns the size of a result in bytes. It adds an allowance for each MIME type of the
// result.
func (r Result) size() int {
	n := 0
	for mime, value := range r.Data {
		n += 128 + len(mime) + len(value)
	}
	return n
}

// line is one line in the answer of /execute.
type line struct {
	Type           string                     `json:"type"`
	Text           json.RawMessage            `json:"text"`
	ExecutionCount int                        `json:"execution_count"`
	Name           string                     `json:"name"`
	Value          string                     `json:"value"`
	Traceback      string                     `json:"traceback"`
	Main           bool                       `json:"is_main_result"`
	Extra          map[string]json.RawMessage `json:"extra"`
	Position       int                        `json:"position"`
}

// fields maps the names of representations in answers of /execute to MIME types.
var fields = map[string]string{
	"text": "text/plain", "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml",
	"png": "image/png", "jpeg": "image/jpeg", "pdf": "application/pdf", "latex": "text/latex",
	"json": "application/json", "javascript": "application/javascript", "data": chart.MIMETypeDataFrame, "chart": chart.MIMEType,
}

// line handles a line in the answer of /execute. It returns [kernelconn.ErrEnd] for the line
// that ends the execution.
func (c *collector) line(text []byte) error {
	var l line
	if err := boundjson.Unmarshal(text, &l, jupyter.MaxMembers, 2); err != nil {
		return fmt.Errorf("read the interpreter's answer: %w", err)
	}
	switch l.Type {
	case "stdout", "stderr":
		var s string
		if err := json.Unmarshal(l.Text, &s); err != nil {
			return fmt.Errorf("read the interpreter's answer: %w", err)
		}
		return c.stream(l.Type, []byte(s))
	case "queued":
		return c.queued(l.Position)
	case "number_of_executions":
		c.execution.Count = l.ExecutionCount
		return c.started()
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
			if v, ok := all[field]; ok {
				r.Data[mime] = v
			}
		}
		return c.result(r)
	case "error":
		if err := kernelconn.LineError(l.Name, l.Value, l.Traceback); err != nil {
			return err
		}
		return c.failed(newExecutionError(l.Name, l.Value, l.Traceback))
	case "end_of_execution":
		if err := c.emit(StatusEvent{State: CodeIdle}); err != nil {
			return err
		}
		return kernelconn.ErrEnd
	}
	return nil
}
