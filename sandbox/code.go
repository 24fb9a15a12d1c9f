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
	// CodeTransportHTTP is one request a call. What it cannot do is
	// [ErrNeedsWebsocket]; updates of displays do not come over it, and code that
	// heeds no interrupt keeps its context busy until RestartContext. When E2B's
	// service has given up a kernel, calls for its context wait until ctx ends.
	CodeTransportHTTP CodeTransport = "http"
)

// RunCodeParams say how to run code. The zero value runs it in the default
// context.
type RunCodeParams struct {
	// Stdout and Stderr get what the code prints as it comes, from the
	// goroutine that called; an error of theirs interrupts the code. May be nil.
	Stdout, Stderr io.Writer
	// OnResult is told each result as it comes, from the goroutine that called,
	// and once more when the code updates it. May be nil. StreamCode tells more.
	OnResult func(Result)
	// Stdin answers when the code asks for input; nil means that it cannot.
	// [io.EOF] is an end of file to the code; any other error interrupts it and
	// is returned. Over HTTP the code runs, and asking is [ErrNeedsWebsocket].
	// Where the connection was cut, and the code says nothing for five minutes
	// after that, it is interrupted with [ErrKernelLost]: a question of it may
	// have been lost.
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Envs are environment variables for this call alone, in UTF-8.
	Envs map[string]string
	// Context is the id of the context to run in, such as one that CreateContext
	// made; empty means the default one of the language. With an id, Language must
	// be empty.
	Context string
	// Language is that of the code, such as "bash", in whatever case, and "js" and
	// "ts" for short; empty means Python. One without a kernel is
	// [ErrUnknownLanguage].
	Language string
	// Silent runs the code without counting it and without a result. It needs
	// the websocket.
	Silent bool
	// NoHistory keeps the code out of the kernel's history and does not count
	// it. It needs the websocket.
	NoHistory bool
	// MaxOutput is how many bytes of each stream the execution keeps; 0 means
	// [DefaultMaxOutput], less than 0 none.
	MaxOutput int
}

// check finds what no kernel could do.
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

// RunCode runs code in a context of the sandbox, where earlier code's variables
// are, and waits for its end. An exception is an [*ExecutionError]; the
// execution is complete then, too. With any other error it has what came, or is
// nil when the code did not start. Code is never run twice. Calls for one
// context wait for each other.
//
// When ctx ends, RunCode returns within 100 ms with an [*InterruptedError], and
// the code is interrupted. If it stops within that time, the execution has its
// traceback in Error; over HTTP it does not come. Where the interrupt does not
// help the kernel is restarted, and where that fails it is ended: the next call
// for the context is then [ErrKernelRestarted].
func (sb *Sandbox) RunCode(ctx context.Context, code string, p *RunCodeParams) (*Execution, error) {
	return sb.runCode(ctx, code, p, nil)
}

// StreamCode is [Sandbox.RunCode] told event by event, in order. The code runs
// while the events are looped over, and waits for a loop that is slow; each loop
// runs it anew. To run other code of the same context in the loop would be to
// wait for ever. The last pair is an [EndEvent] with the error that RunCode would
// return beside it, or nil with an error when the code did not start. Leaving
// the loop early interrupts the code as the end of ctx does.
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

// errLeft: nobody wants more events. It interrupts the code.
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
	c := newCollector(&params)
	c.event = event
	started, err := sb.code.run(ctx, code, &params, c)
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

// maxAttempts is how many connections are tried for code that was not sent.
const maxAttempts = 3

// run runs code the way there is, and finds that out at first. started tells
// that the code may have run.
func (r *codeRunner) run(ctx context.Context, code string, p *RunCodeParams, c *collector) (started bool, err error) {
	if r.way() == CodeTransportHTTP {
		return r.overHTTP(ctx, code, p, c)
	}
	request := jupyter.ExecuteRequest{Code: code, Silent: p.Silent, StoreHistory: !p.Silent && !p.NoHistory}
	handler := executionHandler{queued: c.queued, message: c.message, input: p.Stdin}
	for attempt := 1; ; attempt++ {
		k, err := r.kernel(ctx, p.Context, p.Language)
		if r.choose(ctx, err) == CodeTransportHTTP {
			return r.overHTTP(ctx, code, p, c)
		}
		if err != nil {
			return false, err
		}
		// What a call before this one left may cost the kernel while this one waits.
		handler.ready = func() error { return r.restarted(k.id) }
		if r.languageOf(k.id) != defaultLanguage && len(p.Envs) > 0 {
			if err := handler.ready(); err != nil {
				return false, err
			}
			// How a language takes its environment is what the interpreter knows. Its
			// default context may be another than this handle's.
			there := *p
			there.Context, there.Language = k.id, ""
			return r.overHTTP(ctx, code, &there, c)
		}
		reply, err := k.execute(ctx, request, handler, p.Envs)
		if errors.Is(err, errStale) && attempt < maxAttempts && ctx.Err() == nil {
			continue // on another connection: this one had ended before
		}
		if err != nil {
			return !errors.Is(err, errNotSent) && !errors.Is(err, ErrKernelRestarted), err
		}
		if reply.Status != "ok" && c.execution.Error == nil {
			// A kernel may say it in the reply alone, and one for shells not even there.
			if reply.Name == "" && reply.Value == "" {
				reply.Name, reply.Value = "ExecutionAborted", "the code was interrupted"
			}
			return true, c.failed(newExecutionError(reply.Name, reply.Value, strings.Join(reply.Traceback, "\n")))
		}
		return true, nil
	}
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
	for attempt := 1; ; attempt++ {
		var k *kernel
		if k, err = sb.code.websocket(ctx, contextID); err == nil {
			h.ready = func() error {
				lost := sb.code.restarted(k.id)
				if request.Silent {
					return nil // it finds out by what is in the kernel
				}
				return lost
			}
			reply, err = k.execute(ctx, request, h, nil)
		}
		if !errors.Is(err, errStale) || attempt == maxAttempts || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return reply, sb.failed(ctx, "run code", err)
	}
	return reply, nil
}

// Interrupt interrupts what runs in a context, whoever runs it; an empty id is
// the default context. Python code sees a KeyboardInterrupt. It needs the
// websocket's port. Where nothing runs nothing happens.
func (sb *Sandbox) Interrupt(ctx context.Context, contextID string) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	k, err := sb.code.websocket(ctx, contextID)
	if err == nil {
		err = k.interrupt(ctx)
	}
	if err != nil {
		return sb.failed(ctx, "interrupt", err)
	}
	return nil
}
