package kernelconn

import (
	"context"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// LimitGrace is the time for which output is still read after the code has exceeded its limit.
const LimitGrace = 2 * time.Second

// MessageQueued is the type of a message that only the local cloud sends. The message contains the
// number of executions that the kernel runs before this one.
const MessageQueued = "queued"

// Handler receives the messages of an execution, in order. Its functions are called in the
// goroutine of the call. If a function of the Handler returns an error, the execution is
// interrupted, and the call returns this error.
type Handler struct {
	// If other executions of this handle run before this one, Queued is called with their number.
	// Queued may be nil.
	Queued func(position int) error
	// Message receives every iopub message of the execution, and the execution's requests for input.
	// Message may be nil.
	Message func(*jupyter.Message) error
	// Input answers a request for input. If Input ignores ctx, it may run longer than the execution. If
	// Input is nil, the code cannot ask for input.
	Input func(ctx context.Context, prompt string, password bool) (string, error)
	// Limit returns a Go context that limits the code. It is called when the code is sent. If the
	// returned context ends before ctx, the code is interrupted. It then has [LimitGrace] to send a
	// traceback with its position. Limit may be nil.
	Limit func(ctx context.Context) (context.Context, context.CancelFunc)

	// patience bounds the time between the reply and the idle status, in either order. 0 means
	// otherHalf.
	patience time.Duration
}

// Within returns the Go context that limits the code; see Handler.Limit.
func (h Handler) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.Limit == nil {
		return ctx, func() {}
	}
	return h.Limit(ctx)
}
