package sandbox

import "time"

// CodeEvent is one event of running code. [Sandbox.StreamCode] yields the events in order. The
// types of events are [OutputEvent], [ResultEvent], [DisplayEvent], [UpdateEvent], [ClearEvent],
// [ErrorEvent], [StatusEvent], [InputEvent] and, for the last event, [EndEvent]. Later versions may
// add types, so a switch should ignore unknown types.
type CodeEvent interface{ codeEvent() }

// OutputEvent is a piece of the code's output.
type OutputEvent struct{ Output }

// ResultEvent is the value of the last expression.
type ResultEvent struct{ Result }

// DisplayEvent is a value that the code displayed.
type DisplayEvent struct{ Result }

// UpdateEvent replaces a value that code in the context displayed earlier. Its DisplayID identifies
// this value.
type UpdateEvent struct{ Result }

// ClearEvent removes all results and displays so far. If Wait is set, they stay until the next
// output replaces them.
type ClearEvent struct{ Wait bool }

// ErrorEvent is the exception that ended the code.
type ErrorEvent struct{ Err *ExecutionError }

// StatusEvent reports the state of the request to run the code.
type StatusEvent struct {
	State CodeState
	// Position is the number of executions that are known to run before this one. It is set
	// only while the request is queued.
	Position int
}

// InputEvent is a request for input, which RunCodeParams.Stdin answers.
type InputEvent struct {
	Prompt   string
	Password bool
}

// EndEvent is the last event, with the execution that RunCode would return.
type EndEvent struct{ Execution *Execution }

func (OutputEvent) codeEvent()  {}
func (ResultEvent) codeEvent()  {}
func (DisplayEvent) codeEvent() {}
func (UpdateEvent) codeEvent()  {}
func (ClearEvent) codeEvent()   {}
func (ErrorEvent) codeEvent()   {}
func (StatusEvent) codeEvent()  {}
func (InputEvent) codeEvent()   {}
func (EndEvent) codeEvent()     {}

// CodeState is the state of a request to run code.
type CodeState string

// These are the states of a request, in the order in which they occur.
const (
	// CodeQueued means that other code of the context runs first.
	CodeQueued CodeState = "queued"
	// CodeBusy means that the code runs.
	CodeBusy CodeState = "busy"
	// CodeIdle means that the code has ended.
	CodeIdle CodeState = "idle"
)

// OutputStream is a stream that code prints to.
type OutputStream string

// These are the streams.
const (
	StreamStdout OutputStream = "stdout"
	StreamStderr OutputStream = "stderr"
)

// Output is a piece of the code's output.
type Output struct {
	Stream OutputStream
	Text   string
	// Time is the time of arrival, by this machine's clock.
	Time time.Time
}
