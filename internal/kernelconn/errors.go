package kernelconn

import (
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Errors of calls. Package sandbox exports most of them under other names, and documents their
// meaning for its callers.
var (
	// ErrNotSent means that the code did not leave this machine.
	ErrNotSent = errors.New("the code was not sent")
	// ErrSameContext is returned by a call that needs a context, while the code of this context is
	// waiting for the same call to return.
	ErrSameContext = errors.New("the code of this context waits for the tool that makes this call: use another context or sandbox")
	// ErrDied means that the kernel ended in the middle of a call.
	ErrDied = errors.New("kernel died: its variables are lost, the next call finds a fresh one")
	// ErrRestarted means that the kernel of the context was replaced by a fresh kernel between two
	// calls. The code was not sent.
	ErrRestarted = errors.New("the context has a fresh kernel: its variables are lost, and the code was not run")
	// ErrLost means that the connection broke in the middle of a call.
	ErrLost = errors.New("connection to the kernel lost: the code may have run, and output may be missing")
	// ErrUnknownLanguage means that the sandbox has no kernel for a language.
	ErrUnknownLanguage = errors.New("no kernel for the language is installed in the sandbox")

	// errStale means that the connection had already closed, and that a retry needs a
	// new connection.
	errStale = fmt.Errorf("%w: the kernel's connection has ended: %w", ErrNotSent, api.ErrRetryable)
	// errTooBig means that the server closed the connection because of the message.
	errTooBig = fmt.Errorf("%w: it is larger than what the kernel's server takes in one message: upload it as a file and run that: %w", ErrNotSent, api.ErrInvalidArgument)
)

// InterruptedError is returned by a call if its ctx ended, or the limit of its code was reached,
// while the code ran.
type InterruptedError struct {
	// Context is the context in which the code ran.
	Context string
	// Ran is the time for which the code ran. It is 0 if no message reported the start of the code.
	Ran time.Duration
	// Cause is the cause (see [context.Cause]) of the Go context that ended.
	Cause error
	// Starting means that the kernel has sent nothing to this handle yet.
	Starting bool
	// Ended means that the code stopped before the call returned.
	Ended bool
}

func (e *InterruptedError) Error() string { return fmt.Sprintf("the code was given up: %v", e.Cause) }

// Unwrap returns the cause.
func (e *InterruptedError) Unwrap() error { return e.Cause }
