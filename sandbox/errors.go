package sandbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed: the handle or client was closed, or the handle detached.
	ErrClosed = errors.New("sandbox: closed")
	// ErrGone: the sandbox is not there any more. See [GoneError].
	ErrGone = errors.New("sandbox: gone")
	// ErrPortClosed: the sandbox runs, but nothing listens on the port.
	ErrPortClosed = errors.New("sandbox: port closed")
	// ErrUnknownTemplate: the service has no template of that name for this key.
	ErrUnknownTemplate = errors.New("unknown template")
	// ErrUnknownLanguage: the sandbox has no kernel for a language. Python's is
	// there; others are those that its template has or that are installed in it,
	// such as with the packages bash_kernel and deno.
	ErrUnknownLanguage = errors.New("no kernel for the language is installed in the sandbox")
	// ErrKernelDied: the kernel ended in the middle of a call, by itself or because
	// a client restarted or removed its context, which the error then says. Its
	// variables are lost; the next call finds a fresh kernel, unless the context was
	// removed.
	//
	// A kernel that dies six times in a row is not started again by E2B's service.
	// Then this handle creates a context in place of the one that it used or
	// created, with the same language and directory, and under the same id for its
	// calls. Other handles do not find that id any longer ([api.ErrNotFound]), and
	// use the next context of the language as the default one.
	ErrKernelDied = errors.New("kernel died: its variables are lost, the next call finds a fresh one")
	// ErrKernelRestarted: between two calls the context got a fresh kernel: code
	// that was given up ignored the interrupt, the kernel died, or another client
	// restarted it. One call returns this error, and has not run its code.
	ErrKernelRestarted = errors.New("the context has a fresh kernel: its variables are lost, and the code was not run")
	// ErrNeedsWebsocket: the call needs the kernel's websocket, which this
	// sandbox does not have, or which [WithCodeTransport] ruled out.
	ErrNeedsWebsocket = errors.New("this needs the kernel's websocket (port 8888), which is not to be had or not used here")
	// ErrKernelLost: the connection to the kernel broke in the middle of a
	// call. The code may have run, or may still run; it is not run again.
	ErrKernelLost = errors.New("connection to the kernel lost: the code may have run, and output may be missing")
	// ErrCommandLost: the connection to a command broke before its end. It may
	// still run, and is not started again; [Commands.Connect] finds it.
	ErrCommandLost = errors.New("connection to the command lost: it may still run, and was not started again")
)

// InterruptedError is what a call returns whose context ended while its code
// ran. The code is interrupted. When it stops within seconds, its variables stay;
// when it does not, the next call is [ErrKernelRestarted]. Where the code stopped
// at once, the execution beside this error has the traceback of where it was.
type InterruptedError struct {
	// Context is where the code ran.
	Context string
	// Ran is for how long; 0 when it was not seen to begin.
	Ran time.Duration
	// Cause is why the call's context ended, such as [context.DeadlineExceeded].
	Cause error

	ended bool // all that the code said before it stopped is known
}

func (e *InterruptedError) Error() string {
	if e.Ran == 0 {
		return fmt.Sprintf("%v before the code began: other code of the context may be running, which RestartContext ends", e.Cause)
	}
	what := "is being interrupted"
	if e.ended {
		what = "was interrupted"
	}
	return fmt.Sprintf("%v: the code %s after it had been under way for %v", e.Cause, what, e.Ran.Round(time.Millisecond))
}

// Unwrap gives the cause.
func (e *InterruptedError) Unwrap() error { return e.Cause }

// GoneError says what became of a sandbox. It is [ErrGone].
type GoneError struct {
	// ID is the sandbox.
	ID string
	// State is "killed", "expired" or "paused".
	State string
	// Reason is one line for people.
	Reason string
	// At is when this was noticed; of an expired one, when its life ended as
	// far as this handle knows.
	At time.Time

	cause error
}

func (e *GoneError) Error() string { return fmt.Sprintf("%s is gone: %s", e.ID, e.Reason) }

// Is matches [ErrGone].
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// Unwrap gives what the service said.
func (e *GoneError) Unwrap() error { return e.cause }

// portClosedError is an [ErrPortClosed] that names the port.
type portClosedError struct{ port int }

func (e *portClosedError) Error() string {
	return fmt.Sprintf("nothing listens on port %d of the sandbox", e.port)
}

func (e *portClosedError) Is(target error) bool { return target == ErrPortClosed }
