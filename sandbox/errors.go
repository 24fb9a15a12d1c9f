package sandbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

var (
	// ErrClosed means that the handle or client was closed, or the handle was detached.
	ErrClosed = errors.New("sandbox: closed")
	// ErrGone means that the sandbox has ended or is paused. See [GoneError].
	ErrGone = errors.New("sandbox: gone")
	// ErrPortClosed means that the sandbox runs, but nothing listens on the port.
	ErrPortClosed = errors.New("sandbox: port closed")
	// ErrUnknownTemplate means that the service has no template of the requested name for this key.
	ErrUnknownTemplate = errors.New("unknown template")
	// ErrUnknownLanguage means that the sandbox has no kernel for a language. A kernel for
	// Python is always available. Kernels for other languages come with the template or can be
	// installed, for instance with the packages bash_kernel and deno.
	ErrUnknownLanguage = kernelconn.ErrUnknownLanguage
	// ErrKernelDied means that the kernel ended during a call: by itself, or because a client
	// restarted or removed its context. The error's text gives the reason. The kernel's variables are
	// lost. If the context was not removed, the next call uses a new kernel.
	//
	// E2B's service does not restart a kernel that dies six times in a row. If this handle used or
	// created the kernel's context, it then creates a new context of the same language and directory
	// in place of the old context. Calls of this handle reach the new context under the old id. Other
	// handles no longer find the old id ([ErrNotFound]). If the old context was the default context,
	// other handles use the next context of that language as the default context.
	ErrKernelDied = kernelconn.ErrDied
	// ErrKernelRestarted means that the context received a new kernel between two calls: code ignored
	// the interrupt, the kernel died, or another client restarted the kernel. Only the first call with
	// the new kernel returns this error. This call does not run its code.
	ErrKernelRestarted = kernelconn.ErrRestarted
	// ErrSameContext means that a call would wait for itself: the call needs a context, and the code
	// that runs in this context waits for the call. A tool of package agent may make such a call. Use
	// another context or sandbox.
	ErrSameContext = kernelconn.ErrSameContext
	// ErrNeedsWebsocket means that the call requires the kernel's websocket. Either this sandbox does
	// not have this websocket, or [WithCodeTransport] disabled it.
	ErrNeedsWebsocket = errors.New("requires the kernel's websocket (port 8888), which is unavailable or disabled")
	// ErrKernelLost means that the connection to the kernel broke during a call. The code may have
	// run, or may still be running. It is not run again.
	ErrKernelLost = kernelconn.ErrLost
	// ErrCommandLost means that the connection to a command broke before the command's end. The
	// command may still be running. It is not started again; [Commands.Connect] connects to it.
	ErrCommandLost = errors.New("connection to the command lost: it may still run, and was not started again")
)

// InterruptedError is the error of a call whose context ended while its code ran. The code is
// interrupted. If the code stops within seconds, its variables are kept. Otherwise the next
// call returns [ErrKernelRestarted].
//
// The call waits at most 100 ms for the code to stop. If the code stops within that time, Ended is
// set, and the returned execution has the traceback of the interrupted line. Otherwise the text of
// the error states that the call did not wait, and there is no traceback.
type InterruptedError struct {
	// Context is the context in which the code ran.
	Context ContextID
	// Ran is the running time of the code; 0 if its start was not seen.
	Ran time.Duration
	// Cause is the cause of the end of the call's context, such as [context.DeadlineExceeded].
	Cause error
	// Starting reports that the code did not start, because the kernel of a sandbox that this
	// handle created was still starting.
	Starting bool

	// Ended reports that the code stopped before the call returned. The returned execution then
	// contains everything the code printed.
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

// Unwrap returns e.Cause.
func (e *InterruptedError) Unwrap() error { return e.Cause }

// GoneState is the state of a sandbox that has ended or is paused.
type GoneState string

// These are the states of a [GoneError].
const (
	// the sandbox was killed, or the service does not report the reason
	GoneKilled      GoneState = "killed"
	GoneExpired     GoneState = "expired"       // the lifetime of the sandbox ended
	GoneIdle        GoneState = "idle"          // nothing used the sandbox for its idle limit: see Expiry
	GonePaused      GoneState = "paused"        // the sandbox is paused; connecting resumes it
	GoneOutOfMemory GoneState = "out of memory" // the sandbox exceeded its memory limit
	GoneDied        GoneState = "died"          // the sandbox ended by itself
	// the server or machine of the sandbox, such as the local cloud, ended
	GoneServerGone GoneState = "server gone"
)

// GoneError reports the end or the pause of a sandbox. It matches [ErrGone].
type GoneError struct {
	// ID is the sandbox's id.
	ID string
	// State is the state of the sandbox.
	State GoneState
	// Reason is one line of text for people.
	Reason string
	// At is the time of the end or pause, if the service reports it. Otherwise, for an expired
	// sandbox, At is the end of the lifetime that this handle knew. For any other sandbox, At is the
	// time when this handle noticed the end or pause.
	At time.Time

	cause error
}

func (e *GoneError) Error() string { return fmt.Sprintf("%s is gone: %s", e.ID, e.Reason) }

// goneStates contains the state for each end reason that a service may send. E2B's own service sends no
// reasons.
var goneStates = map[api.EndReason]GoneState{
	api.EndExpired:     GoneExpired,
	api.EndIdle:        GoneIdle,
	api.EndKilled:      GoneKilled,
	api.EndOutOfMemory: GoneOutOfMemory,
	api.EndDied:        GoneDied,
	api.EndServerGone:  GoneServerGone,
}

const lifetimeEnded = "its lifetime ended; ask for more with WithExpiry or SetLifetime"

// fill copies the state, the reason and the time of the sandbox's end from the control plane's
// answer. If the answer contains no known reason, fill copies nothing and returns false.
func (e *GoneError) fill(answer *api.Error) bool {
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

// Is reports whether target is [ErrGone].
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// Unwrap returns the service's error.
func (e *GoneError) Unwrap() error { return e.cause }

// portClosedError is an [ErrPortClosed] that names the port.
type portClosedError struct {
	port   int
	reason string // the reason why the port can never open; "": the port may open later
}

func (e *portClosedError) Error() string {
	text := fmt.Sprintf("nothing listens on port %d of the sandbox", e.port)
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

func (e *portClosedError) Is(target error) bool { return target == ErrPortClosed }
