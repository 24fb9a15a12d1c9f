package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Call is a request to run code in a context.
type Call struct {
	// Context is the id of the context. Empty means the default context of the language,
	// and an empty language means Python.
	Context, Language string
	Request           jupyter.ExecuteRequest
	// Envs are environment variables for this call only. The language must be Python.
	Envs    map[string]string
	Handler Handler
	// IgnoreLoss means that the code runs even if the context has lost its variables since the last
	// call. Without IgnoreLoss, the call then returns an error.
	IgnoreLoss bool
}

// maxAttempts bounds the number of connections over which a call tries to send its code.
const maxAttempts = 3

// Execute waits for other calls of this handle, and then runs a request. When ctx ends, Execute
// returns at once, while the code is interrupted. Execute does not check the status of the reply. A
// kernel drops requests that wait while another client's code fails. If the kernel drops the
// request without running it, Execute sends the request once more.
func (ks *Kernels) Execute(ctx context.Context, c Call) (reply jupyter.ExecuteReply, err error) {
	err = ks.overOpen(ctx, c.Context, c.Language, func(k *Kernel) error {
		reply, err = k.execute(ctx, c)
		return err
	})
	return reply, err
}

// overOpen makes a call over the connection to a kernel. If this connection had already ended
// before the call, overOpen makes the call over another connection.
func (ks *Kernels) overOpen(ctx context.Context, id, language string, call func(*Kernel) error) error {
	for attempt := 1; ; attempt++ {
		k, err := ks.Open(ctx, id, language)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		err = call(k)
		if !errors.Is(err, errStale) || attempt == maxAttempts || ctx.Err() != nil {
			return err
		}
	}
}

// execute runs a call over one connection.
func (k *Kernel) execute(ctx context.Context, c Call) (jupyter.ExecuteReply, error) {
	if err := k.takeTurn(ctx, c.Handler.Queued); err != nil {
		return jupyter.ExecuteReply{}, err
	}
	if err := k.beginUse(c.IgnoreLoss); err != nil {
		k.release()
		return jupyter.ExecuteReply{}, err
	}
	a, err := k.runInTurn(ctx, codeRequest(c.Request, c.Handler), c.Handler, c.Envs)
	return a.reply, err
}

// ExecuteIfFree runs a request. If another execution is in progress, ExecuteIfFree runs nothing and
// returns an error.
func (k *Kernel) ExecuteIfFree(ctx context.Context, code jupyter.ExecuteRequest) (jupyter.ExecuteReply, error) {
	select {
	case k.turn <- struct{}{}:
		k.inTurn.Add(1)
		a, err := k.runInTurn(ctx, codeRequest(code, Handler{}), Handler{}, nil)
		return a.reply, err
	default:
		return jupyter.ExecuteReply{}, errors.New("the kernel is busy")
	}
}

// request is a request to the kernel on its shell channel.
type request struct {
	kind     string // the type of the message, without _request at its end
	content  any
	runsCode bool // the request runs the user's code, which must be stopped when the request is given up
}

// codeRequest returns the request to run code. The code may ask for input if h can answer.
func codeRequest(code jupyter.ExecuteRequest, h Handler) request {
	code.AllowStdin = h.Input != nil
	if code.UserExpressions == nil {
		code.UserExpressions = map[string]string{}
	}
	return request{"execute", code, true}
}

// answer contains the part of the kernel's answer that arrived before the caller stopped
// waiting. If the execution was given up, later messages are handled while the execution is
// stopped.
type answer struct {
	reply   jupyter.ExecuteReply
	content json.RawMessage
}

// runInTurn makes a request. The caller must hold the turn, and runInTurn gives the turn back. If
// there is no error, the answer is complete.
func (k *Kernel) runInTurn(ctx context.Context, r request, h Handler, envs map[string]string) (answer, error) {
	// This is deferred because a handler may panic.
	defer k.settle(ctx, len(envs) > 0)
	if err := k.prepare(ctx, envs, h); err != nil {
		return answer{}, err
	}
	e, err := k.once(ctx, r, h)
	if err == nil && e.dropped() {
		if e, err = k.once(ctx, r, h); err == nil && e.dropped() {
			err = fmt.Errorf("the kernel dropped the code twice without running it: %w", api.ErrRetryable)
		}
	}
	if e == nil {
		return answer{}, err
	}
	return answer{e.reply, e.content}, err
}

// once makes a request. If the request was not sent, e is nil. Otherwise e is the execution, which
// may still run.
func (k *Kernel) once(ctx context.Context, r request, h Handler) (e *execution, err error) {
	if e, err = k.send(r); err != nil {
		return nil, err
	}
	defer func() {
		if e.over {
			k.leave(e)
		}
		if errors.Is(err, ErrDied) {
			k.kernels.noteEnd(k.id)
			k.hangUp()
		}
	}()
	if err = k.follow(ctx, e, h); err == nil {
		err = k.afterwards(ctx, e)
	}
	return e, err
}
