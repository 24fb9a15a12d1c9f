package sandbox

import (
	"context"
	"errors"

	"github.com/e2bctl/e2bctl/api"
)

// uncancelled returns the error err of a call whose context has not ended. If a connection failed,
// err may still match context.Canceled or context.DeadlineExceeded, because this package itself
// closed the lost connection, or the connection did not open in time. uncancelled then returns an
// error that matches neither, because a caller that ignores context.Canceled must not ignore such a
// failure.
//
// Other errors are unchanged: the timeout of a command, for instance, is a deadline that the
// caller has set.
func uncancelled(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if e, ok := errors.AsType[*api.Error](err); ok && e.StatusCode == 0 || errors.Is(err, ErrGone) || errors.Is(err, ErrCommandLost) || errors.Is(err, ErrKernelLost) {
		return &uncancelledError{err}
	}
	return err
}

// uncancelledError matches all errors that its cause matches, except a context's error. It has no
// method Unwrap, because with Unwrap errors.Is would find the context's error.
type uncancelledError struct{ cause error }

func (e *uncancelledError) Error() string { return e.cause.Error() }

func (e *uncancelledError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.cause, target)
}

func (e *uncancelledError) As(target any) bool { return errors.As(e.cause, target) }
