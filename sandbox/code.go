package sandbox

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
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
	// is returned. It needs the websocket: over HTTP the code runs, and asking
	// fails.
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Envs are environment variables for this call alone.
	Envs map[string]string
	// Context is the id of the context to run in, such as one that CreateContext
	// made; empty means the default one of
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

// RunCode runs code in a context of the sandbox, where earlier code's variables
// are, and waits for its end. An exception is an [*ExecutionError]; the
// execution is complete then, too. With any other error it has what came, or is
// nil when the code did not start. When ctx ends, RunCode returns at once and
// the code is interrupted. Code is never run twice. Calls for one context wait
// for each other.
func (sb *Sandbox) RunCode(ctx context.Context, code string, p *RunCodeParams) (*Execution, error) {
	if p == nil {
		p = &RunCodeParams{}
	}
	if p.Context != "" && p.Language != "" {
		return nil, errors.New("sandbox: run code: RunCodeParams has both Context and Language")
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c := newCollector(p)
	started, err := sb.code.run(ctx, code, p, c)
	if err != nil {
		err = sb.failed(ctx, "run code", err)
		if !started {
			return nil, err
		}
		return c.finished(), err
	}
	if e := c.finished(); e.Error != nil {
		return e, e.Error
	}
	return &c.execution, nil
}

// run runs code the way there is, and finds that out at first. started tells
// that the code may have run.
func (r *codeRunner) run(ctx context.Context, code string, p *RunCodeParams, c *collector) (started bool, err error) {
	r.mu.Lock()
	transport := r.transport
	r.mu.Unlock()
	if transport == CodeTransportHTTP {
		return r.overHTTP(ctx, code, p, c)
	}
	k, err := r.kernel(ctx, p.Context, p.Language)
	if transport == CodeTransportAuto && (err == nil || closed(err)) {
		transport = CodeTransportWebsocket
		if err != nil {
			transport = CodeTransportHTTP
		}
		r.mu.Lock()
		r.transport = transport
		r.mu.Unlock()
		if transport == CodeTransportHTTP {
			return r.overHTTP(ctx, code, p, c)
		}
	}
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	language := r.languages[k.id]
	r.mu.Unlock()
	if language != "python" && len(p.Envs) > 0 {
		// How a language takes its environment is what the interpreter knows.
		return r.overHTTP(ctx, code, p, c)
	}
	request := jupyter.ExecuteRequest{Code: code, Silent: p.Silent, StoreHistory: !p.Silent}
	reply, err := k.execute(ctx, request, executionHandler{message: c.message, input: p.Stdin}, p.Envs)
	if err != nil {
		return !errors.Is(err, errNotSent), err
	}
	if reply.Status != "ok" && c.execution.Error == nil {
		// A kernel may say it in the reply alone, and one for shells not even there.
		if reply.Name == "" && reply.Value == "" {
			reply.Name, reply.Value = "ExecutionAborted", "the code was interrupted"
		}
		c.execution.Error = newExecutionError(reply.Name, reply.Value, strings.Join(reply.Traceback, "\n"))
	}
	return true, nil
}

// execute runs a request on the kernel of a context, empty for the default one,
// over its websocket: it gives every message on iopub to the handler and
// returns the reply. It waits for its turn behind RunCode and other calls of
// execute, and when ctx ends it returns at once while the code is interrupted.
// The reply's status is not looked at. A [CodeTransport] other than the
// websocket is an error.
func (sb *Sandbox) execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, h executionHandler) (jupyter.ExecuteReply, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return jupyter.ExecuteReply{}, err
	}
	defer end()
	var reply jupyter.ExecuteReply
	k, err := sb.code.kernel(ctx, contextID, "")
	if err == nil {
		reply, err = k.execute(ctx, request, h, nil)
	}
	if err != nil {
		return reply, sb.failed(ctx, "run code", err)
	}
	return reply, nil
}
