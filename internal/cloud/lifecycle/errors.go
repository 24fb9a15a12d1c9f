package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

var (
	// ErrClosed is returned when the registry has been closed.
	ErrClosed = errors.New("lifecycle: the cloud is closing")
	// ErrKeyReused is returned when an idempotency key was used for another
	// request.
	ErrKeyReused = errors.New("lifecycle: the idempotency key was used for a different request")
	// ErrUnhealthy is returned for a pause that needs an answering envd.
	ErrUnhealthy = errors.New("lifecycle: envd in the sandbox does not answer")
	// ErrUnresponsive is returned for resuming a memory whose envd did not answer
	// when it was paused.
	ErrUnresponsive = errors.New("lifecycle: envd in the sandbox did not answer when it was paused")
	// ErrMemory is in errors that concern the memory alone, not the files.
	ErrMemory = errors.New("its memory")
	// ErrAsleep is returned by Wake for a sandbox that requests do not resume.
	ErrAsleep = errors.New("lifecycle: requests do not resume this sandbox")
)

// NotFoundError means that a sandbox does not exist, or no longer exists, or that it is paused
// and the call needs a running one.
type NotFoundError struct {
	ID     string
	Paused bool
	// Reason, EndedAt and How describe its end; they are zero if it is not known.
	Reason  Reason
	EndedAt time.Time
	How     string
}

func (e *NotFoundError) Error() string {
	switch {
	case e.Paused:
		return fmt.Sprintf("lifecycle: sandbox %q is paused", e.ID)
	case e.How == "":
		return fmt.Sprintf("lifecycle: no sandbox %q", e.ID)
	}
	return fmt.Sprintf("lifecycle: no sandbox %q: %s at %s", e.ID, e.How, e.EndedAt.Format(time.RFC3339))
}

// StateError means that the state of a sandbox does not allow the call.
type StateError struct {
	ID    string
	State State
}

func (e *StateError) Error() string { return fmt.Sprintf("lifecycle: sandbox %q is %v", e.ID, e.State) }

// LimitError means that a sandbox would exceed the limit.
type LimitError struct{ Max int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("lifecycle: there are %d sandboxes, which is the limit", e.Max)
}

// FrozenLimitError means that no further sandbox can keep its memory while it is paused.
type FrozenLimitError struct {
	Max    int   // maximum number of such sandboxes
	Memory int64 // maximum bytes of all together; 0: no limit
}

func (e *FrozenLimitError) Error() string {
	return fmt.Sprintf("lifecycle: paused sandboxes keep as much memory as they may: %d sandboxes, %d bytes", e.Max, e.Memory)
}

// KeptLimitError means that the files of no further sandbox can be kept.
type KeptLimitError struct{ Max int }

func (e *KeptLimitError) Error() string {
	return fmt.Sprintf("lifecycle: the files of %d sandboxes are kept, which is the limit", e.Max)
}

// SaveError means that the files of a sandbox could not be saved, or its memory if the error
// matches [ErrMemory]. It wraps the cause.
type SaveError struct{ Err error }

func (e *SaveError) Error() string { return "lifecycle: keep the files: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SaveError) Unwrap() error { return e.Err }

// LaunchError means that a sandbox could not be started. It wraps the cause.
type LaunchError struct {
	Err     error
	Resumed bool // it is still paused
}

func (e *LaunchError) Error() string { return "lifecycle: launch: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LaunchError) Unwrap() error { return e.Err }

// RefusedError is returned by a launcher for a request that no sandbox can satisfy. Clients are
// shown Reason.
type RefusedError struct {
	Reason    string
	Forbidden bool // the person who started the cloud did not allow it
}

func (e *RefusedError) Error() string { return "lifecycle: sandbox refused: " + e.Reason }

// refusal returns the error for a sandbox whose memory this machine cannot restore, with the
// remedy, and every other error as it is. The remedy comes first: reasons are long.
func refusal(err error, remedy string) error {
	if !errors.Is(err, engine.ErrOtherMachine) {
		return err
	}
	return &RefusedError{Reason: fmt.Sprintf("the saved memory cannot be used on this machine: %s: %v", remedy, err)}
}
