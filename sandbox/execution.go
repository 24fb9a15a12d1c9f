package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/state"
)

// Execution is the result of running code.
type Execution struct {
	// Results are the displayed values in order, and the value of the last expression. They
	// include later updates, and exclude values that the code cleared.
	Results []Result
	// Stdout and Stderr are the printed output that was kept. A line marks each place where
	// bytes were dropped.
	Stdout, Stderr string
	// Logs contains the kept output of both streams in the order of arrival. Output that
	// arrives on one stream without a pause is one entry. Code cannot clear Logs.
	Logs []Output
	// StdoutDropped and StderrDropped are the numbers of bytes that were not kept.
	StdoutDropped, StderrDropped int64
	// LogsDropped is the number of entries of Logs that were not kept. ResultsDropped is the
	// number of results, and of updates of results, that were not kept.
	LogsDropped, ResultsDropped int
	// Error is the exception that ended the code; nil if there was none.
	Error *ExecutionError
	// Count is the number of the execution in its context; 0 if the code ran silently.
	Count int
	// Timing contains the times of the execution.
	Timing Timing
}

// Timing contains the times of an execution, by this machine's clock.
type Timing struct {
	// Asked is the time of the call. Started is the time when the kernel began to run the code; zero
	// if the kernel did not begin. Finished is the time when this program received the end of the
	// code.
	Asked, Started, Finished time.Time
}

// Queued returns the time from the call to the start of the code. If the kernel never began to run
// the code, Queued returns the time from Asked to Finished.
func (t Timing) Queued() time.Duration {
	if t.Started.IsZero() {
		return t.Finished.Sub(t.Asked)
	}
	return t.Started.Sub(t.Asked)
}

// Ran returns the running time of the code.
func (t Timing) Ran() time.Duration {
	if t.Started.IsZero() {
		return 0
	}
	return t.Finished.Sub(t.Started)
}

// Truncated reports whether anything was dropped; StdoutDropped, StderrDropped, LogsDropped and
// ResultsDropped are the numbers of dropped bytes, entries and results.
func (e *Execution) Truncated() bool {
	return e.StdoutDropped > 0 || e.StderrDropped > 0 || e.LogsDropped > 0 || e.ResultsDropped > 0
}

// Main returns the value of the last expression; ok is false if there is none.
func (e *Execution) Main() (main Result, ok bool) {
	if e != nil {
		for _, r := range e.Results {
			if r.Main {
				return r, true
			}
		}
	}
	return Result{}, false
}

// Text returns the text of the value of the last expression, or "" if there is
// none. See [Result.Text].
func (e *Execution) Text() string {
	main, _ := e.Main()
	return main.Text()
}

// Decode stores the value of the last expression in the variable that to points to. It returns
// an error if there is no such value. See [Result.Decode].
func (e *Execution) Decode(to any) error {
	main, ok := e.Main()
	if !ok {
		return fmt.Errorf("sandbox: decode the value of the last expression: there is none: %w", api.ErrInvalidArgument)
	}
	return main.Decode(to)
}

// Decode stores the value in the variable that to points to. It decodes the result of
// [Result.Value] by the rules of [state.Unmarshal]. A string variable accepts the text of any value
// that has no JSON.
func (r Result) Decode(to any) error {
	if s, ok := to.(*string); ok && r.JSON() == nil && r.Data["text/plain"] != nil {
		*s = r.Text()
		return nil
	}
	value, err := r.Value()
	if err != nil {
		return err
	}
	if err := value.Decode(to); err != nil {
		return fmt.Errorf("sandbox: decode a result: %w", err)
	}
	return nil
}

// Value returns the value with its type. If the value has JSON, as lists and dicts do, Value uses
// the JSON ([state.FromJSON]). Otherwise it uses the text, if the text is a number (including
// numpy's numbers), a string, True, False or None. For other Python values, make a list or a dict
// in the code, or use package agent, which transfers values with their types. For data frames use
// [Result.DataFrame].
func (r Result) Value() (state.Value, error) {
	switch text := r.Data["text/plain"]; {
	case r.JSON() != nil:
		value, err := state.FromJSON(r.JSON())
		if err != nil {
			return value, fmt.Errorf("sandbox: the value of a result, from its application/json: %w", err)
		}
		return value, nil
	case r.text(pyshim.MIME) != "":
		value, err := state.Parse([]byte(r.text(pyshim.MIME)), state.Bounds{})
		if err != nil {
			return value, fmt.Errorf("sandbox: the value of a result: %w", err)
		}
		return value, nil
	case text == nil:
		return state.Value{}, fmt.Errorf("sandbox: the value of a result: it is only %s: %w", strings.Join(r.Formats(), ", "), api.ErrInvalidArgument)
	}
	plain := r.text("text/plain")
	value, err := literal(plain)
	if err != nil && r.DataFrame() != nil {
		return value, fmt.Errorf("sandbox: the value of a result: it is a data frame: Result.DataFrame returns it: %w", api.ErrInvalidArgument)
	}
	if err != nil {
		return value, fmt.Errorf("sandbox: the value of the result %.64q: %w", plain, err)
	}
	return value, nil
}

// numpyScalar matches the text that numpy prints for one value of an array, such as np.int64(3).
var numpyScalar = lazyregexp.New(`^np\.\w+\((.*)\)$`)

// literal parses the text that Python prints for a simple value, such as True or 'a'.
func literal(text string) (state.Value, error) {
	if scalar := numpyScalar().FindStringSubmatch(text); scalar != nil {
		text = scalar[1]
	}
	switch text {
	case "None":
		return state.Value{}, nil
	case "True", "np.True_":
		return state.NewValue(true)
	case "False", "np.False_":
		return state.NewValue(false)
	case "nan", "inf", "-inf":
		f, _ := strconv.ParseFloat(text, 64)
		return state.NewValue(f)
	}
	if n := len(text); n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		s, err := unquote(text[1:n-1], text[0])
		if err != nil {
			return state.Value{}, err
		}
		return state.NewValue(s)
	}
	if text != "" && strings.Trim(text, "+-.0123456789e") == "" {
		if value, err := state.FromJSON([]byte(text)); err == nil {
			return value, nil
		}
	}
	return state.Value{}, fmt.Errorf("it has no JSON and its text is not a number, string, True, False or None; have the code make a list or a dict of it: %w", api.ErrInvalidArgument)
}

func unquote(text string, quote byte) (string, error) {
	var s []byte
	for len(text) > 0 {
		r, _, rest, err := strconv.UnquoteChar(text, quote)
		if err != nil {
			return "", errors.New("it is not a string of Python")
		}
		s, text = utf8.AppendRune(s, r), rest // Python's \xff is a character, not a byte
	}
	return string(s), nil
}
