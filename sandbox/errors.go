package sandbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

var (
	// ErrClosed: the handle or client was closed, or the handle was detached.
	ErrClosed = errors.New("sandbox: closed")
	// ErrGone: the sandbox is no longer there. See [GoneError].
	ErrGone = errors.New("sandbox: gone")
	// ErrPortClosed: the sandbox runs, but nothing listens on the port.
	ErrPortClosed = errors.New("sandbox: port closed")
	// ErrUnknownTemplate: the service has no template of that name for this key.
	ErrUnknownTemplate = errors.New("unknown template")
	// ErrUnknownLanguage: the sandbox has no kernel for a language. Python's is
	// always there; others come with the template or are installed, for instance
	// with the packages bash_kernel and deno.
	ErrUnknownLanguage = kernelconn.ErrUnknownLanguage
	// ErrKernelDied: the kernel ended in the middle of a call, by itself or because
	// a client restarted or removed its context; the error says which. Its variables
	// are lost; the next call uses a fresh kernel, unless the context was removed.
	//
	// E2B's service does not restart a kernel that dies six times in a row. This
	// handle then creates a context in place of the one that it used or created,
	// with the same language and directory, and its calls reach it under the same
	// id. Other handles no longer find that id ([ErrNotFound]), and use the next
	// context of the language as the default one.
	ErrKernelDied = kernelconn.ErrDied
	// ErrKernelRestarted: between two calls the context got a fresh kernel: code
	// that was given up ignored the interrupt, the kernel died, or another client
	// restarted it. One call returns this error, and has not run its code.
	ErrKernelRestarted = kernelconn.ErrRestarted
	// ErrSameContext is returned by a call that needs a context whose code is
	// waiting for that same call, as a tool of package agent may make: use another
	// context or sandbox.
	ErrSameContext = kernelconn.ErrSameContext
	// ErrNeedsWebsocket: the call requires the kernel's websocket, which this
	// sandbox does not have or which [WithCodeTransport] disabled.
	ErrNeedsWebsocket = errors.New("requires the kernel's websocket (port 8888), which is unavailable or disabled")
	// ErrKernelLost: the connection to the kernel broke in the middle of a
	// call. The code may have run, or may still run; it is not run again.
	ErrKernelLost = kernelconn.ErrLost
	// ErrCommandLost: the connection to a command broke before its end. The command
	// may still run, and is not started again; [Commands.Connect] finds it.
	ErrCommandLost = errors.New("connection to the command lost: it may still run, and was not started again")
)

// InterruptedError is returned by a call whose context ended while its code ran.
// The code is interrupted. If it stops within seconds, its variables are kept; if
// not, the next call returns [ErrKernelRestarted]. The call waits 100 ms at most: if
// the code stopped within that time, Ended is set and the execution that is returned
// with this error has the traceback of where the code was. Otherwise the error says
// that the call did not wait for the code to stop, and there is no traceback.
type InterruptedError struct {
	// Context is the context in which the code ran.
	Context ContextID
	// Ran is the time that the code ran; 0 if it was not seen to start.
	Ran time.Duration
	// Cause is the cause of the end of the call's context, such as [context.DeadlineExceeded].
	Cause error
	// Starting reports that the code did not start because the kernel of a sandbox
	// that this handle created was still starting.
	Starting bool

	// Ended reports that the code stopped before the call returned: everything it
	// printed is in the execution that is returned with this error.
	Ended bool
}

func (e *InterruptedError) Error() string {
	if e.Starting {
		return fmt.Sprintf("%v before the code began: the kernel was still starting, so give the call more time", e.Cause)
	}
	if e.Ran == 0 {
		return fmt.Sprintf("%v before the code began: other code of the context may be running, which Contexts.Restart ends", e.Cause)
	}
	ran := e.Ran.Round(time.Millisecond)
	if e.Ended {
		return fmt.Sprintf("%v: the code was interrupted after it had been under way for %v", e.Cause, ran)
	}
	return fmt.Sprintf("%v: the code is being interrupted after it had been under way for %v, and the call did not wait for it to stop, so there is no traceback: unless it stops soon its kernel is replaced, and all variables are lost", e.Cause, ran)
}

// Unwrap returns the cause.
func (e *InterruptedError) Unwrap() error { return e.Cause }

// GoneState is the fate of a sandbox that is gone.
type GoneState string

// The states of a [GoneError].
const (
	GoneKilled      GoneState = "killed"        // it was killed, or the service does not say what happened
	GoneExpired     GoneState = "expired"       // its lifetime ended
	GonePaused      GoneState = "paused"        // it is paused; connecting resumes it
	GoneOutOfMemory GoneState = "out of memory" // it used more memory than it may
	GoneDied        GoneState = "died"          // it ended by itself
	GoneServerGone  GoneState = "server gone"   // its server or machine ended, such as the local cloud
)

// GoneError reports the end or the pause of a sandbox. It matches [ErrGone].
type GoneError struct {
	// ID is the sandbox's id.
	ID string
	// State is its fate.
	State GoneState
	// Reason is one line for people.
	Reason string
	// At is the time of the end or pause, if the service says it. Otherwise it is the end of the
	// lifetime as far as this handle knows, for an expired sandbox, and for any other the time
	// when this was noticed.
	At time.Time

	cause error
}

func (e *GoneError) Error() string { return fmt.Sprintf("%s is gone: %s", e.ID, e.Reason) }

// goneStates are the states for the reasons that a service sends. E2B's own sends
// none.
var goneStates = map[api.EndReason]GoneState{
	api.EndExpired:     GoneExpired,
	api.EndKilled:      GoneKilled,
	api.EndOutOfMemory: GoneOutOfMemory,
	api.EndDied:        GoneDied,
	api.EndServerGone:  GoneServerGone,
}

const lifetimeEnded = "its lifetime ended; ask for more with WithExpiry or SetLifetime"

// tell takes over what the control plane says about the sandbox. It reports
// whether that is a reason.
func (e *GoneError) tell(answer *api.Error) bool {
	state, known := goneStates[answer.Reason]
	if !known {
		return false
	}
	e.State, e.Reason = state, answer.Message
	if state == GoneExpired {
		e.Reason = lifetimeEnded
	}
	if !answer.EndedAt.IsZero() {
		e.At = answer.EndedAt
	}
	return true
}

// Is matches [ErrGone].
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// Unwrap returns the service's error.
func (e *GoneError) Unwrap() error { return e.cause }

// portClosedError is an [ErrPortClosed] that names the port.
type portClosedError struct {
	port   int
	reason string // why nothing ever will; "": something may
}

func (e *portClosedError) Error() string {
	text := fmt.Sprintf("nothing listens on port %d of the sandbox", e.port)
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

func (e *portClosedError) Is(target error) bool { return target == ErrPortClosed }
