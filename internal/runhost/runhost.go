// Package runhost is the door through which sandbox/agent uses a sandbox beyond
// its public API: requests to a kernel as they are, and what belongs to a handle.
// Package sandbox opens it.
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
	// ErrNotSent: the code did not leave this machine.
	ErrNotSent = errors.New("the code was not sent")
	// ErrSameContext is what a call returns that needs a context whose code waits
	// for that very call.
	ErrSameContext = errors.New("the code of this context waits for the tool that makes this call: use another context or sandbox")
)

// LimitGrace is how long code that is over its limit is listened to.
const LimitGrace = 2 * time.Second

// Handler is told what an execution says, in order, from the goroutine that
// executes. An error of any of them interrupts the execution and is returned.
type Handler struct {
	// Message is given every message on iopub that is the execution's, and the
	// requests for input. May be nil.
	Message func(*jupyter.Message) error
	// Input answers a request for input; it may outlive the execution when it
	// ignores ctx. Nil means that the code cannot ask.
	Input func(ctx context.Context, prompt string, password bool) (string, error)
	// Limit returns the context that the code runs within; it is called when the
	// code is sent. When that ends before ctx, the code is interrupted, and has
	// [LimitGrace] to say where it was. May be nil.
	Limit func(ctx context.Context) (context.Context, context.CancelFunc)
}

// Within returns the context that the code runs within.
func (h Handler) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.Limit == nil {
		return ctx, func() {}
	}
	return h.Limit(ctx)
}

// Host is what a run needs of its sandbox. It is safe for concurrent use.
type Host interface {
	TemplateID() string
	Logger() *slog.Logger
	// ContextID returns the id of a context, of the default one for "". It needs
	// the websocket.
	ContextID(ctx context.Context, id string) (string, error)
	// CheckPrivate returns an error unless the kernels refuse requests without the
	// sandbox's tokens.
	CheckPrivate(ctx context.Context) error
	// Execute runs a request on the kernel of a context, over its websocket. It
	// waits for its turn, and when ctx ends it returns at once while the code is
	// interrupted. The reply's status is not looked at.
	Execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, h Handler) (jupyter.ExecuteReply, error)
	// Attached returns what the handle keeps for package agent, made at first use.
	Attached(make func() any) any
}

// Collector makes an execution of messages. It is not safe for concurrent use.
type Collector interface {
	Message(m *jupyter.Message) error
	// Failed notes the exception that ended the code, if none came as a message.
	Failed(name, value, traceback string)
	// Finished returns the *sandbox.Execution.
	Finished() any
}

// Of returns the host of a *sandbox.Sandbox, and NewCollector makes a collector
// that keeps maxOutput bytes of each stream. Package sandbox sets both.
var (
	Of           func(sandbox any) Host
	NewCollector func(stdout, stderr io.Writer, maxOutput int) Collector
)

// waiting is a context of a sandbox whose code waits for a tool.
type waiting struct {
	outer            *waiting
	sandbox, context string
}

type waitingKey struct{}

// WithWaiting notes in the context of a tool's call whose code waits for it.
func WithWaiting(ctx context.Context, sandboxID, contextID string) context.Context {
	outer, _ := ctx.Value(waitingKey{}).(*waiting)
	return context.WithValue(ctx, waitingKey{}, &waiting{outer, sandboxID, contextID})
}

// CheckNotWaiting returns [ErrSameContext] when the code of the context waits
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
