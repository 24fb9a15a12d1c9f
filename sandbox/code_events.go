package sandbox

import "time"

// CodeEvent is one thing that running code does, as [Sandbox.StreamCode] yields
// them in order. It is one of [OutputEvent], [ResultEvent], [DisplayEvent],
// [UpdateEvent], [ClearEvent], [ErrorEvent], [StatusEvent], [InputEvent] and, as
// the last one, [EndEvent]. Later versions may add more: a switch should ignore
// types that it does not know.
type CodeEvent interface{ codeEvent() }

// OutputEvent is a piece of the code's output.
type OutputEvent struct{ Output }

// ResultEvent is the value of the last expression.
type ResultEvent struct{ Result }

// DisplayEvent is a value that the code displayed.
type DisplayEvent struct{ Result }

// UpdateEvent replaces the value that this code or earlier code of the context displayed under its
// DisplayID.
type UpdateEvent struct{ Result }

// ClearEvent removes the results and displays so far. With Wait they stay until
// there is output to replace them.
type ClearEvent struct{ Wait bool }

// ErrorEvent is the exception that ends the code.
type ErrorEvent struct{ Err *ExecutionError }

// StatusEvent reports the state of the request to run the code.
type StatusEvent struct {
	State CodeState
	// Position is the known number of executions that run before it. It is only set
	// while the request is queued.
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

// The states, in their order.
const (
	// CodeQueued: other code of the context runs first.
	CodeQueued CodeState = "queued"
	// CodeBusy: the code runs.
	CodeBusy CodeState = "busy"
	// CodeIdle: the code has ended.
	CodeIdle CodeState = "idle"
)

// OutputStream is a stream that code prints to.
type OutputStream string

// The streams.
const (
	StreamStdout OutputStream = "stdout"
	StreamStderr OutputStream = "stderr"
)

// Output is a piece of the code's output.
type Output struct {
	Stream OutputStream
	Text   string
	// Time is the time of its arrival, by this machine's clock.
	Time time.Time
}
