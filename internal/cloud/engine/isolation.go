package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Isolation is an isolation level: how sandboxes are kept apart from the host and
// from each other.
type Isolation string

// The isolation levels. Auto tries Full and then Restricted, but never None. It also skips
// Restricted where sandboxes would have the server's id and Landlock does not stop signals.
const (
	Auto       Isolation = ""
	Full       Isolation = "full"       // namespaces, capabilities, seccomp, limits
	Restricted Isolation = "restricted" // Landlock, seccomp and rlimits in place, for machines that refuse namespaces
	None       Isolation = "none"       // plain processes; only if asked for by name
)

// Errors of an engine and its sandboxes, for use with errors.Is.
var (
	// ErrNoIsolation means that the machine refuses something that the requested isolation needs. The error
	// is a [*NoIsolationError].
	ErrNoIsolation = errors.New("no isolation")
	// ErrPortClosed means that nothing in the sandbox listens on that port.
	ErrPortClosed = errors.New("port is closed")
	// ErrGone means that the sandbox has ended.
	ErrGone = errors.New("sandbox is gone")
	// ErrFrozen means that the sandbox is frozen, so nothing in it answers.
	ErrFrozen = errors.New("sandbox is frozen")
	// ErrEnded means that the engine and all its sandboxes have ended.
	ErrEnded = errors.New("ended")
	// ErrClosed means that the sandbox was ended by Close.
	ErrClosed = errors.New("closed")
	// ErrOutOfMemory means that envd was killed because the sandbox reached its memory limit.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrProcessesLeft means that some processes could not be ended, because there are no namespaces and no
	// control groups to end them.
	ErrProcessesLeft = errors.New("processes of a sandbox may still be running")
	// ErrLinuxOnly means that this system does not have the engine.
	ErrLinuxOnly = errors.New("it runs on Linux only, with 64 bits")
	// ErrTooLarge means that the configuration of a sandbox is over its bound.
	ErrTooLarge = errors.New("the configuration of the sandbox is too large")
	// ErrLimits means that a sandbox cannot start within its limits.
	ErrLimits = errors.New("limits too small to start a sandbox in")
	// ErrOtherMachine means that saved memory can be restored only with the same programs, processor and
	// kernel.
	ErrOtherMachine = errors.New("its memory cannot be restored here")
	// ErrTooMany means that a limit on connections was reached.
	ErrTooMany = errors.New("too many at once")
)

// EgressTransparent is the value of [Report].Egress if every program inside can
// reach the outside.
const EgressTransparent = "transparent"

// Attempt is an isolation level that was tried, and the machine's answer.
type Attempt struct {
	Isolation Isolation
	Err       error
}

// NoIsolationError says which levels were tried, why each failed and how to fix it.
type NoIsolationError struct {
	Attempts []Attempt
	Remedy   string // what to do on this machine; "" if Attempts says it
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

// Unwrap returns the machine's answers.
func (e *NoIsolationError) Unwrap() []error {
	errs := make([]error, len(e.Attempts))
	for i, a := range e.Attempts {
		errs[i] = a.Err
	}
	return errs
}

// Report describes what the machine provides, for doctor. Each limit names the
// mechanism that enforces it; one that is not enforced starts with "not enforced".
type Report struct {
	Engine    Name
	Promises  Promises
	Isolation Isolation
	// IsolationNote says why an automatically chosen level is less than Full: the missing
	// protection, the machine's refusal, and the remedy. It is the first of Notes. It is empty at
	// Full, and at a level requested by name.
	IsolationNote string
	IDs           uint32 // user ids of a sandbox: 65536, or 1 if root and user are the same id
	Memory        string
	CPU           string
	Processes     string
	Disk          string
	// Pause is the mechanism that stops the processes of a paused sandbox: a control group, or
	// signals and the reason for having no such group.
	Pause string
	// Egress is the path of connections out of a sandbox: [EgressTransparent], or the reason why
	// only programs that use the proxy reach the network.
	Egress string
	Notes  []string // weaknesses of this machine, with reasons
	// Hidden are the entries of Options.Trees that a sandbox's id may not enter. Showing them would
	// need mounts that map ids.
	Hidden []string
}
