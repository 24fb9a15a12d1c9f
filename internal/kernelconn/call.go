package kernelconn

import (
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Call is a request to run code in a context.
type Call struct {
	// Context is the id of the context. Empty means the default context of the
	// language, and an empty language means Python.
	Context, Language string
	Request           jupyter.ExecuteRequest
	// Envs are environment variables for this call only. The language must be Python.
	Envs    map[string]string
	Handler Handler
	// IgnoreLoss runs the code even if the context has lost its variables since the
	// last call, instead of returning that as an error.
	IgnoreLoss bool
}

// maxAttempts is how many connections are tried for code that was not sent yet.
const maxAttempts = 3

// Execute runs a request when its turn comes. It waits for other calls of this
// handle, and returns at once when ctx ends, while the code is interrupted. It does
// not look at the status of the reply. If the kernel drops the request without
// running it, as it does with requests that wait behind another client's failure, it
// is sent once more.
func (ks *Kernels) Execute(ctx context.Context, c Call) (jupyter.ExecuteReply, error) {
	for attempt := 1; ; attempt++ {
		k, err := ks.Open(ctx, c.Context, c.Language)
		if err != nil {
			return jupyter.ExecuteReply{}, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		reply, err := k.execute(ctx, c)
		if !errors.Is(err, errStale) || attempt == maxAttempts || ctx.Err() != nil {
			return reply, err
		}
		// Another connection is tried: this one had ended before.
	}
}

// execute runs a call over one connection.
func (k *Kernel) execute(ctx context.Context, c Call) (jupyter.ExecuteReply, error) {
	if err := k.takeTurn(ctx, c); err != nil {
		return jupyter.ExecuteReply{}, err
	}
	return k.runInTurn(ctx, c.Request, c.Handler, c.Envs)
}

// ExecuteIfFree runs a request unless another execution is under way.
func (k *Kernel) ExecuteIfFree(ctx context.Context, request jupyter.ExecuteRequest) (jupyter.ExecuteReply, error) {
	select {
	case k.turn <- struct{}{}:
		k.inTurn.Add(1)
		return k.runInTurn(ctx, request, Handler{}, nil)
	default:
		return jupyter.ExecuteReply{}, errors.New("the kernel is busy")
	}
}

// runInTurn runs a request for the holder of the turn, and gives the turn back.
func (k *Kernel) runInTurn(ctx context.Context, request jupyter.ExecuteRequest, h Handler, envs map[string]string) (jupyter.ExecuteReply, error) {
	// This is deferred because a handler may panic.
	defer k.settle(ctx, len(envs) > 0)
	if err := k.prepare(ctx, envs, h); err != nil {
		return jupyter.ExecuteReply{}, err
	}
	e, err := k.once(ctx, request, h)
	if err == nil && e.dropped() {
		if e, err = k.once(ctx, request, h); err == nil && e.dropped() {
			err = fmt.Errorf("the kernel dropped the code twice without running it: %w", api.ErrRetryable)
		}
	}
	if e == nil {
		return jupyter.ExecuteReply{}, err
	}
	return e.reply, err
}

// once runs a request. The execution is nil if the request was not sent; it is
// over unless it still runs.
func (k *Kernel) once(ctx context.Context, request jupyter.ExecuteRequest, h Handler) (e *execution, err error) {
	request.AllowStdin = h.Input != nil
	if request.UserExpressions == nil {
		request.UserExpressions = map[string]string{}
	}
	if e, err = k.send(request); err != nil {
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
