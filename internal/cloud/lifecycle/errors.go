package lifecycle

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned when the registry has been closed.
	ErrClosed = errors.New("lifecycle: the cloud is closing")
	// ErrKeyReused is returned when an idempotency key was used for another
	// request.
	ErrKeyReused = errors.New("lifecycle: the idempotency key was used for a different request")
)

// NotFoundError means that a sandbox does not exist, or no longer exists.
type NotFoundError struct {
	ID string
	// How says how and when it ended; "" if that is not known.
	How string
}

func (e *NotFoundError) Error() string {
	if e.How == "" {
		return fmt.Sprintf("lifecycle: no sandbox %q", e.ID)
	}
	return fmt.Sprintf("lifecycle: no sandbox %q: %s", e.ID, e.How)
}

// LimitError means that a sandbox would exceed the limit.
type LimitError struct{ Max int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("lifecycle: there are %d sandboxes, which is the limit", e.Max)
}

// LaunchError means that a sandbox could not be started. It wraps the cause.
type LaunchError struct{ Err error }

func (e *LaunchError) Error() string { return "lifecycle: launch: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LaunchError) Unwrap() error { return e.Err }

// RefusedError is returned by a launcher for a request that no sandbox can
// satisfy. The client is shown Reason.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "lifecycle: sandbox refused: " + e.Reason }
