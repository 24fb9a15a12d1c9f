package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// RunCodeParams sets how to run code. The zero value runs it as Python in the default context.
type RunCodeParams struct {
	// Stdout and Stderr receive the code's output as it arrives. Nil means no writer. Their Write
	// methods are called in the caller's goroutine. If Write returns an error, the code is
	// interrupted.
	Stdout, Stderr io.Writer
	// OnResult is called with each result as it arrives, and again when the code updates the result.
	// It is called in the caller's goroutine. It may be nil. StreamCode reports more events.
	OnResult func(Result)
	// Stdin answers a request of the code for input. If Stdin is nil, the code cannot ask for input.
	// If Stdin returns [io.EOF], the code receives the end of a file. If Stdin returns another error,
	// the code is interrupted, and the call returns this error.
	//
	// Over HTTP the code runs, but a request for input fails with [ErrNeedsWebsocket]. When the
	// connection is cut, a request for input may be lost. Therefore, if the code is silent for five
	// minutes after a cut, it is interrupted, and the error is [ErrKernelLost].
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Envs are environment variables for this call only, in UTF-8.
	Envs map[string]string
	// Context is the id of the context in which the code runs, such as an id that
	// Contexts.Create returned. Empty means the default context of the language. Language must
	// be empty if Context is set.
	Context ContextID
	// Language is the language of the code, such as "bash", in upper or lower case. The short names
	// "js" and "ts" are accepted. Empty means Python. If the sandbox has no kernel for the language,
	// the error is [ErrUnknownLanguage].
	Language string
	// Silent runs the code without a result and without increasing the execution count. It
	// needs the websocket.
	Silent bool
	// NoHistory keeps the code out of the kernel's history and does not increase the execution
	// count. It needs the websocket.
	NoHistory bool
	// MaxOutputBytes limits the bytes of each stream that the [Execution] keeps. Zero means
	// [DefaultMaxOutputBytes]. A negative number means that no output is kept.
	MaxOutputBytes int64
}

// check returns an error for parameters that no kernel can fulfil.
func (p *RunCodeParams) check() error {
	if p.Context != "" && p.Language != "" {
		return errors.New("RunCodeParams has both Context and Language, and a context has its language")
	}
	for name, value := range p.Envs {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") || !utf8.ValidString(name+value) {
			return fmt.Errorf("RunCodeParams.Envs: %.64q is not the name of an environment variable", name)
		}
	}
	return nil
}

// normalLanguage returns the name that the service uses for a language.
func normalLanguage(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return name
}

// RunCode runs code in a context of the sandbox and waits for the code's end. The code can use the
// variables of earlier code in the context. Code is never run twice. Calls for the same context run
// one after another. Code runs as root, in the home directory of "user". [CommandParams].User
// describes the consequence for files that the code creates.
//
// If the code ends with an exception, the error is an [*ExecutionError], and the returned execution
// is complete. With any other error, the execution contains the output until the error. If the code
// did not start, the execution is nil.
//
// When ctx ends, RunCode interrupts the code and returns an [*InterruptedError] within 100 ms. If
// the code stops within this time, the Error of the execution contains the traceback of the code.
// Over HTTP, there is no traceback. If the interrupt has no effect, the kernel is restarted. If the
// restart fails, the kernel is ended. The next call for the context then returns
// [ErrKernelRestarted].
//
// A pause of the sandbox suspends the code. The code continues when the sandbox is resumed. The
// call waits, and resumes the sandbox if requests may resume it. If this handle paused the sandbox,
// the call does not resume it. Over HTTP, a pause makes the call return [ErrKernelLost] instead.
func (sb *Sandbox) RunCode(ctx context.Context, code string, p *RunCodeParams) (*Execution, error) {
	return sb.runCode(ctx, code, p, nil)
}

// StreamCode runs code like [Sandbox.RunCode], but yields the events of the run in order. The code
// runs during the loop over the events, and waits for a slow loop. Each new loop runs the code
// again. If the body of the loop runs other code in the same context, there is a deadlock. The last
// pair contains an [EndEvent] and the error that RunCode would return. If the code did not start,
// the last pair contains nil and an error. If the caller leaves the loop early, the code is
// interrupted, as when ctx ends.
//
//	for event, err := range sb.StreamCode(ctx, code, nil) {
//		if err != nil {
//			return err
//		}
//		switch e := event.(type) {
//		case sandbox.OutputEvent:
//			fmt.Print(e.Text)
//		case sandbox.DisplayEvent:
//			show(e.Result)
//		}
//	}
func (sb *Sandbox) StreamCode(ctx context.Context, code string, p *RunCodeParams) iter.Seq2[CodeEvent, error] {
	return func(yield func(CodeEvent, error) bool) {
		left := false
		execution, err := sb.runCode(ctx, code, p, func(e CodeEvent) error {
			if left = !yield(e, nil); left {
				return errLeft
			}
			return nil
		})
		switch {
		case left:
		case execution != nil:
			yield(EndEvent{execution}, err)
		default:
			yield(nil, err)
		}
	}
}

// errLeft interrupts the code when the caller has left the loop over the events.
var errLeft = errors.New("the loop over the events was left")

func (sb *Sandbox) runCode(ctx context.Context, code string, p *RunCodeParams, event func(CodeEvent) error) (*Execution, error) {
	var params RunCodeParams
	if p != nil {
		params = *p
	}
	err := params.check()
	if err == nil && !utf8.ValidString(code) {
		err = errors.New("the code is not UTF-8")
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: run code: %w: %w", api.ErrInvalidArgument, err)
	}
	params.Language = normalLanguage(params.Language)
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, traced := tracingIn(ctx, sb.client.trace.Code, sb, code)
	execution, err := sb.collectCode(ctx, code, &params, event)
	traced(execution, err)
	return execution, err
}

// collectCode runs code and collects its output and results.
func (sb *Sandbox) collectCode(ctx context.Context, code string, p *RunCodeParams, event func(CodeEvent) error) (*Execution, error) {
	c := newCollector(p)
	c.event = event
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

// run runs code over the websocket or over HTTP. It first determines which of these transports the
// sandbox supports. If started is true, the code may have run.
func (r *codeRunner) run(ctx context.Context, code string, p *RunCodeParams, c *collector) (started bool, err error) {
	python := func() *RunCodeParams {
		there := *p
		there.Envs = r.sb.client.trace.envs(ctx, p.Envs)
		return &there
	}
	overHTTP := func() (bool, error) {
		if p.Context == "" && (p.Language == "" || p.Language == kernelconn.DefaultLanguage) {
			return r.overHTTP(ctx, code, python(), c)
		}
		return r.overHTTP(ctx, code, p, c)
	}
	if r.way() == CodeTransportHTTP {
		return overHTTP()
	}
	k, err := r.kernels.Open(ctx, string(p.Context), p.Language)
	if r.choose(ctx, err) == CodeTransportHTTP {
		return overHTTP()
	}
	if err != nil {
		return false, err
	}
	if k.Language() == kernelconn.DefaultLanguage {
		p = python()
	}
	if k.Language() != kernelconn.DefaultLanguage && len(p.Envs) > 0 {
		if err := r.kernels.Loss(k.ID()); err != nil {
			return false, err
		}
		// The interpreter sets the environment, because only it knows how each language does
		// that. Its default context may differ from this handle's.
		there := *p
		there.Context, there.Language = ContextID(k.ID()), ""
		return r.overHTTP(ctx, code, &there, c)
	}
	reply, err := r.kernels.Execute(ctx, kernelconn.Call{
		Context: string(p.Context), Language: p.Language, Envs: p.Envs,
		Request: jupyter.ExecuteRequest{Code: code, Silent: p.Silent, StoreHistory: !p.Silent && !p.NoHistory},
		Handler: kernelconn.Handler{Queued: c.queued, Message: c.message, Input: p.Stdin},
	})
	if err != nil {
		return !errors.Is(err, kernelconn.ErrNotSent) && !errors.Is(err, kernelconn.ErrRestarted), err
	}
	if reply.Status != "ok" && c.execution.Error == nil {
		// A kernel may report an exception only in the reply. Kernels for shells do not even do
		// that.
		if reply.Name == "" && reply.Value == "" {
			reply.Name, reply.Value = "ExecutionAborted", "the code was interrupted"
		}
		return true, c.failed(newExecutionError(reply.Name, reply.Value, strings.Join(reply.Traceback, "\n")))
	}
	return true, nil
}

// execute runs a request on the kernel of a context, over the kernel's websocket. An empty
// contextID means the default context. execute passes every message on iopub to the handler, and
// returns the reply. It does not check the status of the reply. It waits until earlier calls of
// RunCode and execute have ended. When ctx ends, it interrupts the code and returns at once. If the
// [CodeTransport] is not the websocket, it returns an error.
func (sb *Sandbox) execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return jupyter.ExecuteReply{}, err
	}
	defer end()
	var reply jupyter.ExecuteReply
	if _, err = sb.code.websocket(ctx, contextID); err == nil {
		// The caller of silent code learns about lost messages from the state of the kernel.
		reply, err = sb.code.kernels.Execute(ctx, kernelconn.Call{Context: contextID, Request: request, Handler: handler, IgnoreLoss: request.Silent})
	}
	if err != nil {
		return reply, sb.failed(ctx, "run code", err)
	}
	return reply, nil
}
