package kernelconn

import (
	"context"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// LimitGrace is the time for which the output of code that is over its limit is still read.
const LimitGrace = 2 * time.Second

// MessageQueued is the type of a message that only the local cloud sends. It has the
// number of executions of the kernel that run first.
const MessageQueued = "queued"

// Handler receives the messages of an execution, in order, from the goroutine that
// executes. If any of its functions returns an error, the execution is interrupted and
// the error is returned.
type Handler struct {
	// Queued is called with the number of executions of this handle that run first, if
	// there are any. May be nil.
	Queued func(position int) error
	// Message receives every iopub message of the execution, and its
	// requests for input. May be nil.
	Message func(*jupyter.Message) error
	// Input answers a request for input. If it ignores ctx it may outlive the
	// execution. Nil means that the code cannot ask for input.
	Input func(ctx context.Context, prompt string, password bool) (string, error)
	// Limit returns the context within which the code runs. It is called when the code
	// is sent. If that context ends before ctx, the code is interrupted, and has
	// [LimitGrace] to send the traceback of its position. May be nil.
	Limit func(ctx context.Context) (context.Context, context.CancelFunc)

	// patience limits the time between the reply and the idle, in either order; 0
	// means otherHalf.
	patience time.Duration
}

// Within returns the context within which the code runs.
func (h Handler) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.Limit == nil {
		return ctx, func() {}
	}
	return h.Limit(ctx)
}
