package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Isolation is an isolation level: how sandboxes are kept apart from the host and
// from each other.
type Isolation string

// The isolation levels. Auto tries Full and then Restricted, but never None. Auto skips Restricted if
// sandboxes would have the server's user id and Landlock does not restrict signals.
const (
	Auto       Isolation = ""
	Full       Isolation = "full"       // namespaces, capabilities, seccomp, limits
	Restricted Isolation = "restricted" // Landlock, seccomp and rlimits, without an own file system; for machines that refuse namespaces
	None       Isolation = "none"       // processes without isolation; only used if requested by name
)

// Errors of an engine and its sandboxes, for use with errors.Is.
var (
	// ErrNoIsolation means that the machine refuses something that the requested isolation needs. The
	// error that matches ErrNoIsolation is a [*NoIsolationError].
	ErrNoIsolation = errors.New("no isolation")
	// ErrPortClosed means that nothing in the sandbox listens on the requested port.
	ErrPortClosed = errors.New("port is closed")
	// ErrGone means that the sandbox has ended.
	ErrGone = errors.New("sandbox is gone")
	// ErrFrozen means that the sandbox is frozen, so nothing in it answers.
	ErrFrozen = errors.New("sandbox is frozen")
	// ErrEnded means that the engine and all its sandboxes have ended.
	ErrEnded = errors.New("ended")
	// ErrClosed means that Close ended the sandbox, or that Leave or Close detached the engine from a
	// [Lasting] sandbox.
	ErrClosed = errors.New("closed")
	// ErrOutOfMemory means that envd was killed because the sandbox reached its memory limit.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrProcessesLeft means that some processes could not be ended, because the sandbox has neither a
	// namespace nor a control group with which the server could end all of them.
	ErrProcessesLeft = errors.New("processes of a sandbox may still be running")
	// ErrLinuxOnly means that the engine needs 64-bit Linux, and this is another system.
	ErrLinuxOnly = errors.New("it runs on Linux only, with 64 bits")
	// ErrTooLarge means that the configuration of a sandbox, or the record of a [Lasting] sandbox,
	// exceeds its maximum size.
	ErrTooLarge = errors.New("the configuration of the sandbox is too large")
	// ErrLimits means that a sandbox cannot start, because one of its limits is too low.
	ErrLimits = errors.New("limits too small to start a sandbox in")
	// ErrOtherMachine means that saved memory cannot be restored here. Saved memory can be restored only
	// with the same programs, processor and kernel.
	ErrOtherMachine = errors.New("its memory cannot be restored here")
	// ErrExists means that another server makes or has made the sandbox, see [Adopter].
	ErrExists = errors.New("another server has made it")
	// ErrElsewhere means that another server closed the sandbox.
	ErrElsewhere = errors.New("another server ended it")
	// ErrTooMany means that a limit on a number was reached, such as the number of connections,
	// terminals or sandboxes.
	ErrTooMany = errors.New("too many at once")
)

// EgressTransparent is the value of [Report].Egress if every program in a sandbox can reach the
// outside, even a program that does not use the proxy.
const EgressTransparent = "transparent"

// Attempt is an isolation level that was tried, and the machine's answer, which is an error.
type Attempt struct {
	Isolation Isolation
	Err       error
}

// NoIsolationError lists the levels that were tried, the reason why each of them failed, and the
// remedy.
type NoIsolationError struct {
	Attempts []Attempt
	Remedy   string // how to fix this machine; "" if Attempts already has the remedy
}

func (e *NoIsolationError) Error() string {
	var b strings.Builder
	b.WriteString("engine: no isolation on this machine")
	for _, a := range e.Attempts {
		fmt.Fprintf(&b, "; %s: %v", a.Isolation, a.Err)
	}
	if e.Remedy != "" {
		b.WriteString("; to mend it: " + e.Remedy)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrNoIsolation) true.
func (e *NoIsolationError) Is(target error) bool { return target == ErrNoIsolation }

// Unwrap returns the machine's answers: the errors of all Attempts.
func (e *NoIsolationError) Unwrap() []error {
	errs := make([]error, len(e.Attempts))
	for i, a := range e.Attempts {
		errs[i] = a.Err
	}
	return errs
}

// Report describes the isolation that the machine provides, for the command doctor. The limits are
// Memory, CPU, Processes and Disk: the text of each limit names the mechanism that enforces the limit.
// If nothing enforces a limit, its text starts with "not enforced".
type Report struct {
	Engine    Name
	Promises  Promises
	Isolation Isolation
	// IsolationNote explains why an automatically chosen level is less than Full: it contains the
	// missing protection, the machine's refusal, and the remedy. The same text is the first element
	// of Notes. IsolationNote is "" if the level is Full or was requested by name.
	IsolationNote string
	// Most has the size of the machine that runs the sandboxes, if this may be another machine than
	// the server's. A zero field is unknown.
	Most      Bounds
	IDs       uint32 // number of user ids of a sandbox: 65536, or 1 if root and user have the same id
	Memory    string
	CPU       string
	Processes string
	Disk      string
	// Pause is the mechanism that stops the processes of a paused sandbox, such as a control group
	// or signals. If signals stop the processes, Pause also contains the reason why there is no
	// control group.
	Pause string
	// Suspends means that a pause suspends new sandboxes, as [Suspender] describes.
	Suspends bool
	// Egress is the path of connections out of a sandbox: [EgressTransparent], or the reason why
	// only programs that use the proxy reach the network.
	Egress string
	Notes  []string // weaknesses of this machine, with reasons
	// Hidden are those directories in the room's Options.Trees that a sandbox's user id has no
	// permission to enter. Only mounts that map ids could make these directories visible.
	Hidden []string
}
