package cmdutil

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// UsageError is a mistake in the command line of Command. Its message refers to that
// command's help.
type UsageError struct {
	Err     error
	Command string
}

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a *UsageError about cmd with a formatted message.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...), Command: cmd.CommandPath()}
}

// OnLocal is a placeholder in a hint. It comes after a command that accepts --local, and is
// replaced by that flag or by nothing.
const OnLocal = "{local}"

// HintedError is an error that has its own hint. A hint is advice for the user, and may contain
// [OnLocal].
type HintedError interface {
	error
	Hint() string
}

// PartialError means that some of several targets failed. Each failure has already been
// reported.
type PartialError struct{ Failed, Total int }

func (e *PartialError) Error() string { return fmt.Sprintf("%d of %d failed", e.Failed, e.Total) }

// ErrorView is an error as -o json shows it.
type ErrorView struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Status    int    `json:"status,omitempty"` // the status of the service's answer
	RequestID string `json:"requestID,omitempty"`
}

// ErrorView returns err as -o json shows it, or nil if err is nil.
func (f *Factory) ErrorView(err error) *ErrorView {
	if err == nil {
		return nil
	}
	view := f.describe(err)
	return &view
}

// RemoteStatus is the exit status of a remote command. e2bctl exits with it unchanged, and prints
// no error: the remote command has already written its messages.
type RemoteStatus int

func (s RemoteStatus) Error() string { return fmt.Sprintf("remote status %d", int(s)) }

// OwnError is a failure of e2bctl itself in a command that returns a remote status; Running means
// that the request to start the remote command had already been sent.
type OwnError struct {
	Err     error
	Running bool
}

func (e *OwnError) Error() string { return e.Err.Error() }
func (e *OwnError) Unwrap() error { return e.Err }

// OwnFailure marks err as a failure of e2bctl, unless err is a remote status. The exit status for a
// failure of e2bctl cannot be mistaken for the exit status of the remote command.
func OwnFailure(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[RemoteStatus](err); ok {
		return err
	}
	if _, ok := errors.AsType[*OwnError](err); ok {
		return err
	}
	return &OwnError{Err: err}
}

// KeepStatus joins a later failure to err. If err is a [RemoteStatus], KeepStatus returns it alone,
// because a script needs that status.
func KeepStatus(err, later error) error {
	if later == nil {
		return err
	}
	if _, ok := errors.AsType[RemoteStatus](err); ok {
		return err
	}
	return errors.Join(err, later)
}
