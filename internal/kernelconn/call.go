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
	// IgnoreLoss runs the code even if the context has lost its variables since the
	// last call, instead of returning that as an error.
	IgnoreLoss bool
}

// maxAttempts limits the connections that are tried for code that was not sent yet.
const maxAttempts = 3

// Execute runs a request when its turn comes. It waits for other calls of this handle.
// When ctx ends it returns at once, while the code is interrupted. It does not check the
// status of the reply. If the kernel drops the request without running it, as it does
// with requests that wait behind another client's failure, the request is sent once more.
func (ks *Kernels) Execute(ctx context.Context, c Call) (reply jupyter.ExecuteReply, err error) {
	err = ks.overOpen(ctx, c.Context, c.Language, func(k *Kernel) error {
		reply, err = k.execute(ctx, c)
		return err
	})
	return reply, err
}

// overOpen makes a call over the connection to a kernel. If that had already ended, it
// makes the call over another connection.
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

// ExecuteIfFree runs a request unless another execution is under way.
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
	runsCode bool // the user's code, which has to be stopped when the request is given up
}

// codeRequest returns the request to run code, which may ask for input if h answers.
func codeRequest(code jupyter.ExecuteRequest, h Handler) request {
	code.AllowStdin = h.Input != nil
	if code.UserExpressions == nil {
		code.UserExpressions = map[string]string{}
	}
	return request{"execute", code, true}
}

// answer is the kernel's answer to a request at the time when the caller stopped waiting. Later messages of an
// execution that was given up are handled while it is stopped.
type answer struct {
	reply   jupyter.ExecuteReply
	content json.RawMessage
}

// runInTurn makes a request for the holder of the turn, and gives the turn back. Without
// an error the answer is complete.
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

// once makes a request. The execution is nil if the request was not sent. Otherwise the
// execution is over, unless it still runs.
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
