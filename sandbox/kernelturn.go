package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// executionHandler receives what an execution sends, and before that how it
// waits.
type executionHandler struct {
	kernelconn.Handler

	// ready is called when the execution's turn comes, before anything is sent; its
	// error is returned. May be nil.
	ready func() error
	// queued is called with the number of executions of this handle that run first,
	// if there are any. May be nil.
	queued func(position int) error
	// patience is how long after the reply the idle may arrive, or the reverse; 0
	// means otherHalf.
	patience time.Duration
}

// execute runs a request when its turn comes. envs are set only for this request.
// If the kernel drops it without running it, as it does with requests that wait
// behind another client's failure, it is sent once more.
func (k *kernel) execute(ctx context.Context, request jupyter.ExecuteRequest, h executionHandler, envs map[string]string) (jupyter.ExecuteReply, error) {
	for _, name := range k.kernels.names(k.id) {
		if err := kernelconn.CheckNotWaiting(ctx, k.kernels.SandboxID, name); err != nil {
			return jupyter.ExecuteReply{}, err
		}
	}
	ahead := k.inTurn.Add(1) - 1
	if err := k.wait(ctx, int(ahead), h.queued); err != nil {
		k.inTurn.Add(-1)
		return jupyter.ExecuteReply{}, err
	}
	if err := k.pass(ctx); err != nil {
		k.release()
		return jupyter.ExecuteReply{}, err
	}
	k.mu.Lock()
	spent := k.spent
	k.mu.Unlock()
	if spent {
		<-k.done // until then other calls would get this connection
		k.release()
		return jupyter.ExecuteReply{}, errStale
	}
	if h.ready != nil {
		if err := h.ready(); err != nil {
			k.release()
			return jupyter.ExecuteReply{}, err
		}
	}
	k.mu.Lock()
	k.used = true
	k.mu.Unlock()
	return k.hold(ctx, request, h, envs)
}

// wait waits for the turn.
func (k *kernel) wait(ctx context.Context, ahead int, queued func(int) error) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	default:
	}
	if queued != nil {
		if err := queued(max(ahead, 1)); err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, for other code of its context runs: %w", errNotSent, context.Cause(ctx))
	case <-k.done:
		return errStale
	}
}

// pass waits while the context is being ended: a kernel that is about to end
// would take what is sent with it.
func (k *kernel) pass(ctx context.Context) error {
	select {
	case k.gate <- struct{}{}:
		<-k.gate
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, for its context is being ended: %w", errNotSent, context.Cause(ctx))
	case <-k.done:
		return errStale
	}
}

// whenFree runs a request unless another execution is under way.
func (k *kernel) whenFree(ctx context.Context, request jupyter.ExecuteRequest) (jupyter.ExecuteReply, error) {
	select {
	case k.turn <- struct{}{}:
		k.inTurn.Add(1)
		return k.hold(ctx, request, executionHandler{}, nil)
	default:
		return jupyter.ExecuteReply{}, errors.New("the kernel is busy")
	}
}

// hold executes a request while it holds the turn.
func (k *kernel) hold(ctx context.Context, request jupyter.ExecuteRequest, h executionHandler, envs map[string]string) (jupyter.ExecuteReply, error) {
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
func (k *kernel) settle(ctx context.Context, envs bool) {
	e := k.unfinished()
	if e == nil && !envs && k.settled() {
		k.release()
		return
	}
	k.kernels.Background(ctx, func(ctx context.Context) {
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
		if _, err := k.once(ctx, silently(restoreEnvs), executionHandler{}); err != nil {
			if e := k.unfinished(); e != nil {
				k.stop(ctx, e)
			}
		}
	})
}

func (k *kernel) release() {
	k.inTurn.Add(-1)
	<-k.turn
}

// prepare sets the environment of the sandbox, once, and that of the call. It may
// have to wait for other clients' code, which is all that is reported to the
// handler.
func (k *kernel) prepare(ctx context.Context, envs map[string]string, h executionHandler) (err error) {
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
		case k.kernels.languageOf(k.id) == defaultLanguage:
			steps = append(steps, completeEnvs(common))
		default:
			if err := k.kernels.Server.Prime(ctx, k.id); err != nil {
				return fmt.Errorf("%w: set environment variables: %w", errNotSent, err)
			}
		}
	}
	if len(envs) > 0 {
		steps = append(steps, replaceEnvs(envs))
	}
	for _, code := range steps {
		e, err := k.once(ctx, silently(code), executionHandler{Handler: kernelconn.Handler{Message: func(m *jupyter.Message) error {
			if h.Message == nil || m.Header.MsgType != queuedMessage {
				return nil
			}
			return h.Message(m)
		}}})
		if err == nil && e.reply.Status != "ok" {
			err = fmt.Errorf("%s: %s", e.reply.Name, clip.Text(e.reply.Value, 256))
		}
		if errors.Is(err, errNotSent) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: set environment variables: %w", errNotSent, err)
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
func (k *kernel) prove(ctx context.Context) error {
	for attempt := 1; k.unproven; attempt++ {
		_, err := k.once(ctx, silently(""), executionHandler{patience: provePatience})
		switch {
		case err == nil:
			k.unproven = false
		case errors.Is(err, ErrKernelLost) && attempt < proveAttempts && ctx.Err() == nil:
		default:
			return fmt.Errorf("%w: find out whether the kernel answers: %w", errNotSent, err)
		}
	}
	return nil
}

// once runs a request. The execution is nil if the request was not sent; it is
// over unless it still runs.
func (k *kernel) once(ctx context.Context, request jupyter.ExecuteRequest, h executionHandler) (e *execution, err error) {
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
		if errors.Is(err, ErrKernelDied) {
			k.kernels.noteEnd(k.id)
			k.hangUp()
		}
	}()
	if err = k.follow(ctx, e, h); err == nil {
		err = k.afterwards(ctx, e)
	}
	return e, err
}
