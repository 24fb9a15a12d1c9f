package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
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

// takeTurn waits until a call may use the kernel, which it then holds until settle
// gives it back.
func (k *Kernel) takeTurn(ctx context.Context, c Call) (err error) {
	for _, name := range k.kernels.names(k.id) {
		if err := CheckNotWaiting(ctx, k.kernels.options.SandboxID, name); err != nil {
			return err
		}
	}
	ahead := k.inTurn.Add(1) - 1
	if err := k.wait(ctx, int(ahead), c.Handler.Queued); err != nil {
		k.inTurn.Add(-1)
		return err
	}
	defer func() {
		if err != nil {
			k.release()
		}
	}()
	if err := k.pass(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	spent := k.spent
	k.mu.Unlock()
	if spent {
		<-k.done // until then other calls would get this connection
		return errStale
	}
	// An earlier call that was given up may have cost the kernel while this one waited.
	if lost := k.kernels.Loss(k.id); lost != nil && !c.IgnoreLoss {
		return lost
	}
	k.mu.Lock()
	k.used = true
	k.mu.Unlock()
	return nil
}

// wait waits for the turn.
func (k *Kernel) wait(ctx context.Context, ahead int, queued func(int) error) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	default:
	}
	if queued != nil {
		if err := queued(max(ahead, 1)); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, for other code of its context runs: %w", ErrNotSent, context.Cause(ctx))
	case <-k.done:
		return errStale
	}
}

// pass waits while the context is being ended: a kernel that is about to end
// would take what is sent with it.
func (k *Kernel) pass(ctx context.Context) error {
	select {
	case k.gate <- struct{}{}:
		<-k.gate
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, for its context is being ended: %w", ErrNotSent, context.Cause(ctx))
	case <-k.done:
		return errStale
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

// settle gives the turn back once what the call left in the kernel is gone and no
// interrupt is on its way there.
func (k *Kernel) settle(ctx context.Context, envs bool) {
	e := k.unfinished()
	if e == nil && !envs && k.settled() {
		k.release()
		return
	}
	k.kernels.options.Background(ctx, func(ctx context.Context) {
		defer k.release()
		if e != nil {
			k.stop(ctx, e)
		}
		if !k.settled() {
			<-k.interruptSent
		}
		if !envs {
			return
		}
		if _, err := k.once(ctx, silently(restoreEnvs), Handler{}); err != nil {
			if e := k.unfinished(); e != nil {
				k.stop(ctx, e)
			}
		}
	})
}

func (k *Kernel) release() {
	k.inTurn.Add(-1)
	<-k.turn
}

// prepare sets the environment of the sandbox, once, and that of the call. It may
// have to wait for other clients' code, which is all that is reported to the
// handler.
func (k *Kernel) prepare(ctx context.Context, envs map[string]string, h Handler) (err error) {
	var steps []string
	defer func() {
		if err != nil {
			k.primed.Store(false)
		}
	}()
	if err := k.prove(ctx); err != nil {
		return err
	}
	if !k.primed.Swap(true) {
		common := k.kernels.environment(ctx)
		switch {
		case len(common) == 0:
		case k.language == DefaultLanguage:
			steps = append(steps, completeEnvs(common))
		default:
			if err := k.kernels.options.Server.Prime(ctx, k.id); err != nil {
				return fmt.Errorf("%w: set environment variables: %w", ErrNotSent, err)
			}
		}
	}
	if len(envs) > 0 {
		steps = append(steps, replaceEnvs(envs))
	}
	for _, code := range steps {
		e, err := k.once(ctx, silently(code), Handler{Message: func(m *jupyter.Message) error {
			if h.Message == nil || m.Header.MsgType != MessageQueued {
				return nil
			}
			return h.Message(m)
		}})
		if err == nil && e.reply.Status != "ok" {
			err = fmt.Errorf("%s: %s", e.reply.Name, clip.Text(e.reply.Value, 256))
		}
		if errors.Is(err, ErrNotSent) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: set environment variables: %w", ErrNotSent, err)
		}
	}
	return nil
}

const (
	// provePatience is how long a kernel may take between the two halves of the answer
	// to an empty request, and proveAttempts how often it is asked.
	provePatience = time.Second
	proveAttempts = 10
)

// prove finds out whether what the kernel sends on iopub arrives. When a kernel is
// restarted the server opens the channels of a websocket at once, but the kernel
// drops what it sends there until it has learned of them.
func (k *Kernel) prove(ctx context.Context) error {
	for attempt := 1; k.unproven; attempt++ {
		_, err := k.once(ctx, silently(""), Handler{patience: provePatience})
		switch {
		case err == nil:
			k.unproven = false
		case errors.Is(err, ErrLost) && attempt < proveAttempts && ctx.Err() == nil:
		default:
			return fmt.Errorf("%w: find out whether the kernel answers: %w", ErrNotSent, err)
		}
	}
	return nil
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
