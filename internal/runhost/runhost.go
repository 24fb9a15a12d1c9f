// Package runhost is the interface through which sandbox/agent uses a sandbox beyond
// its public API: it sends requests to a kernel unchanged, and stores data that belongs
// to a handle. Package sandbox provides the implementation.
package runhost

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

var (
	// ErrNotSent means that the code did not leave this machine.
	ErrNotSent = errors.New("the code was not sent")
	// ErrSameContext is returned by a call that needs a context whose code is waiting
	// for that very call.
	ErrSameContext = errors.New("the code of this context waits for the tool that makes this call: use another context or sandbox")
)

// LimitGrace is how long the output of code that is over its limit is still read.
const LimitGrace = 2 * time.Second

// Handler receives what an execution produces, in order, from the goroutine that
// executes. If any of its functions returns an error, the execution is interrupted and
// the error is returned.
type Handler struct {
	// Message receives every iopub message of the execution, and its
	// requests for input. May be nil.
	Message func(*jupyter.Message) error
	// Input answers a request for input; it may outlive the execution if it
	// ignores ctx. Nil means that the code cannot ask for input.
	Input func(ctx context.Context, prompt string, password bool) (string, error)
	// Limit returns the context within which the code runs; it is called when the
	// code is sent. If that context ends before ctx, the code is interrupted, and has
	// [LimitGrace] to say where it was. May be nil.
	Limit func(ctx context.Context) (context.Context, context.CancelFunc)
}

// Within returns the context within which the code runs.
func (h Handler) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.Limit == nil {
		return ctx, func() {}
	}
	return h.Limit(ctx)
}

// Host is what a run needs from its sandbox. It is safe for concurrent use.
type Host interface {
	TemplateID() string
	Logger() *slog.Logger
	// ContextID returns the id of a context; "" stands for the default context. It
	// needs the websocket.
	ContextID(ctx context.Context, id string) (string, error)
	// CheckPrivate returns an error unless the kernels refuse requests without the
	// sandbox's tokens.
	CheckPrivate(ctx context.Context) error
	// Execute runs a request on the kernel of a context, over its websocket. It
	// waits for its turn. If ctx ends it returns at once, while the code is
	// interrupted. It does not look at the reply's status.
	Execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, h Handler) (jupyter.ExecuteReply, error)
	// Attached returns what the handle keeps for package agent, made at its first use.
	Attached(make func() any) any
}

// Collector builds an execution from messages. It is not safe for concurrent use.
type Collector interface {
	Message(m *jupyter.Message) error
	// Failed records the exception that ended the code, if none arrived as a message.
	Failed(name, value, traceback string)
	// Finished returns the *sandbox.Execution.
	Finished() any
}

// Of returns the host of a *sandbox.Sandbox, and NewCollector returns a collector
// that keeps maxOutput bytes of each stream. Package sandbox sets both.
var (
	Of           func(sandbox any) Host
	NewCollector func(stdout, stderr io.Writer, maxOutput int) Collector
)

// waiting is a context of a sandbox whose code is waiting for a tool.
type waiting struct {
	outer            *waiting
	sandbox, context string
}

type waitingKey struct{}

// WithWaiting records in the context of a tool's call which code is waiting for it.
func WithWaiting(ctx context.Context, sandboxID, contextID string) context.Context {
	outer, _ := ctx.Value(waitingKey{}).(*waiting)
	return context.WithValue(ctx, waitingKey{}, &waiting{outer, sandboxID, contextID})
}

// CheckNotWaiting returns [ErrSameContext] if the code of the context is waiting
// for the caller.
func CheckNotWaiting(ctx context.Context, sandboxID, contextID string) error {
	w, _ := ctx.Value(waitingKey{}).(*waiting)
	for ; w != nil; w = w.outer {
		if w.sandbox == sandboxID && w.context == contextID {
			return ErrSameContext
		}
	}
	return nil
}
