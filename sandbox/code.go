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

// RunCodeParams sets how to run code. The zero value runs it in the default
// context.
type RunCodeParams struct {
	// Stdout and Stderr receive the code's output, as it arrives, on the caller's goroutine; an
	// error that they return interrupts the code. May be nil.
	Stdout, Stderr io.Writer
	// OnResult is called with each result as it arrives, on the caller's goroutine,
	// and again when the code updates it. May be nil. StreamCode reports more.
	OnResult func(Result)
	// Stdin answers when the code asks for input; nil means that it cannot ask. If
	// Stdin returns [io.EOF], the code sees an end of file; any other error
	// interrupts the code and is returned. Over HTTP the code runs, but a request
	// for input fails with [ErrNeedsWebsocket]. If the connection was cut and the
	// code is silent for five minutes afterwards, the code is interrupted with
	// [ErrKernelLost], because a request for input may have been lost.
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Envs are environment variables for this call only, in UTF-8.
	Envs map[string]string
	// Context is the id of the context to run in, such as one that Contexts.Create
	// returned; empty means the default context of the language. If it is set,
	// Language must be empty.
	Context ContextID
	// Language is the language of the code, such as "bash", in upper or lower case;
	// "js" and "ts" are accepted as short names. Empty means Python. A language
	// without a kernel is [ErrUnknownLanguage].
	Language string
	// Silent runs the code without counting it and without a result. It needs
	// the websocket.
	Silent bool
	// NoHistory keeps the code out of the kernel's history and does not count
	// it. It needs the websocket.
	NoHistory bool
	// MaxOutputBytes limits the bytes of each stream that the execution keeps. Zero means
	// [DefaultMaxOutputBytes]; a negative number keeps none.
	MaxOutputBytes int64
}

// check refuses parameters that no kernel could carry out.
func (p *RunCodeParams) check() error {
	if p.Context != "" && p.Language != "" {
		return errors.New("RunCodeParams has both Context and Language, and a context has its language")
	}
	for name, value := range p.Envs {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") || !utf8.ValidString(name+value) {
			return fmt.Errorf("RunCodeParams.Envs: %.64q is no environment variable", name)
		}
	}
	return nil
}

// normalLanguage returns the service's name of a language.
func normalLanguage(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return name
}

// RunCode runs code in a context of the sandbox, which has the variables of
// earlier code, and waits for its end. An exception is an [*ExecutionError]; the
// execution is complete then, too. With any other error the execution holds what
// had arrived, or is nil if the code did not start. Code is never run twice.
// Calls for one context wait for each other. Code runs as root, with "user"'s home as
// its first directory: [CommandParams].User says what that means for its files.
//
// When ctx ends, RunCode returns within 100 ms with an [*InterruptedError], and
// the code is interrupted. If the code stops within that time, the execution has
// its traceback in Error; over HTTP there is none. If the interrupt has no effect
// the kernel is restarted, and if that fails it is ended: the next call for the
// context then returns [ErrKernelRestarted].
//
// If the sandbox is paused meanwhile, the code goes on with it, and so does the
// call: it resumes the sandbox if requests may do that, but waits while this handle
// itself keeps the sandbox paused. Over HTTP it returns [ErrKernelLost] instead.
func (sb *Sandbox) RunCode(ctx context.Context, code string, p *RunCodeParams) (*Execution, error) {
	return sb.runCode(ctx, code, p, nil)
}

// StreamCode is like [Sandbox.RunCode], but yields the events of the run in
// order. The code runs while the loop over the events does, and waits for a slow
// loop; each loop runs the code anew. Running other code of the same context
// inside the loop deadlocks. The last pair is an [EndEvent] with the error that
// RunCode would return, or nil with an error if the code did not start. Leaving
// the loop early interrupts the code, as the end of ctx does.
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

// errLeft: the caller left the loop over the events. It interrupts the code.
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

// collectCode runs code during a call and collects what comes of it.
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

// run runs code over the websocket or over HTTP. It first finds out which of them the sandbox has.
// If started is true, the code may have run.
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
		// Only the interpreter knows how a language takes its environment. Its default
		// context may be another than this handle's.
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
		// A kernel may report an exception only in the reply, and one for shells not
		// even there.
		if reply.Name == "" && reply.Value == "" {
			reply.Name, reply.Value = "ExecutionAborted", "the code was interrupted"
		}
		return true, c.failed(newExecutionError(reply.Name, reply.Value, strings.Join(reply.Traceback, "\n")))
	}
	return true, nil
}

// execute runs a request on the kernel of a context, empty for the default one,
// over its websocket: it passes every message on iopub to the handler and returns
// the reply. It waits for its turn behind RunCode and other calls of execute, and
// when ctx ends it returns at once while the code is interrupted. It does not
// look at the reply's status. It fails if the [CodeTransport] is not the
// websocket.
func (sb *Sandbox) execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return jupyter.ExecuteReply{}, err
	}
	defer end()
	var reply jupyter.ExecuteReply
	if _, err = sb.code.websocket(ctx, contextID); err == nil {
		// The caller of silent code finds out about a loss from the state of the kernel.
		reply, err = sb.code.kernels.Execute(ctx, kernelconn.Call{Context: contextID, Request: request, Handler: handler, IgnoreLoss: request.Silent})
	}
	if err != nil {
		return reply, sb.failed(ctx, "run code", err)
	}
	return reply, nil
}
