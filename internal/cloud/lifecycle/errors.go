package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

var (
	// ErrClosed is returned after the registry has been closed.
	ErrClosed = errors.New("lifecycle: the cloud is closing")
	// ErrKeyReused is returned for an idempotency key that was used for a different request.
	ErrKeyReused = errors.New("lifecycle: the idempotency key was used for a different request")
	// ErrUnhealthy is returned for a pause that requires envd to answer.
	ErrUnhealthy = errors.New("lifecycle: envd in the sandbox does not answer")
	// ErrUnresponsive is returned for a resume with memory if envd did not answer at the pause.
	ErrUnresponsive = errors.New("lifecycle: envd in the sandbox did not answer when it was paused")
	// ErrMemory is wrapped by errors that concern only the memory of a sandbox, not the files.
	ErrMemory = errors.New("its memory")
	// ErrAsleep is returned by Wake for a sandbox that requests do not resume.
	ErrAsleep = errors.New("lifecycle: requests do not resume this sandbox")
)

// NotFoundError means that a sandbox does not exist, or no longer exists. A call that needs a running
// sandbox also returns a NotFoundError if the sandbox is paused.
type NotFoundError struct {
	ID     string
	Paused bool
	// Reason, EndedAt and How describe the end of the sandbox. They are zero if the end is unknown.
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

// StateError reports that the state of a sandbox does not allow the call.
type StateError struct {
	ID    string
	State State
}

func (e *StateError) Error() string { return fmt.Sprintf("lifecycle: sandbox %q is %v", e.ID, e.State) }

// LimitError reports that the limit of sandboxes is reached.
type LimitError struct{ Max int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("lifecycle: there are %d sandboxes, which is the limit", e.Max)
}

// FrozenLimitError means that no further paused sandbox can keep its memory, because a limit is
// reached.
type FrozenLimitError struct {
	Max    int   // maximum number of such sandboxes
	Memory int64 // maximum bytes of memory of all such sandboxes; 0: no limit
}

func (e *FrozenLimitError) Error() string {
	return fmt.Sprintf("lifecycle: paused sandboxes keep as much memory as they may: %d sandboxes, %d bytes", e.Max, e.Memory)
}

// KeptLimitError means that the limit of sandboxes with kept files is reached.
type KeptLimitError struct{ Max int }

func (e *KeptLimitError) Error() string {
	return fmt.Sprintf("lifecycle: the files of %d sandboxes are kept, which is the limit", e.Max)
}

// SaveError means that the files or the memory of a sandbox could not be saved. If the error matches
// [ErrMemory], the memory could not be saved, and otherwise the files. SaveError wraps the cause.
type SaveError struct{ Err error }

func (e *SaveError) Error() string { return "lifecycle: keep the files: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SaveError) Unwrap() error { return e.Err }

// LaunchError means that a sandbox could not be started. LaunchError wraps the cause.
type LaunchError struct {
	Err     error
	Resumed bool // a resume failed, so that the sandbox is still paused
}

func (e *LaunchError) Error() string { return "lifecycle: launch: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LaunchError) Unwrap() error { return e.Err }

// RefusedError is returned by a launcher for a request that no sandbox can satisfy. Reason is a
// text for clients.
type RefusedError struct {
	Reason      string
	Unsupported bool // the engine or the machine lacks a feature
	Forbidden   bool // the person who started the cloud did not allow the request
}

func (e *RefusedError) Error() string { return "lifecycle: sandbox refused: " + e.Reason }

// refusal adds a remedy to err if err means that this machine cannot restore the memory of a
// sandbox. It returns every other error unchanged. The text of the remedy precedes the text of err,
// because the text of err can be long.
func refusal(err error, remedy string) error {
	if !errors.Is(err, engine.ErrOtherMachine) {
		return err
	}
	return &RefusedError{Reason: fmt.Sprintf("the saved memory cannot be used on this machine: %s: %v", remedy, err)}
}
