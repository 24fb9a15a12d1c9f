package sandbox

import (
	"context"
	"errors"

	"github.com/e2bctl/e2bctl/api"
)

// uncancelled returns the error of a call whose caller's context has not ended, so
// that it matches no error of a context. A connection that is lost is often one that
// this package itself ended, or that did not open in time; a caller who ignores
// context.Canceled must not ignore that.
//
// Other errors are kept as they are: a limit that the caller set, such as the timeout
// of a command, is a deadline of the caller's.
func uncancelled(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if e, ok := errors.AsType[*api.Error](err); ok && e.StatusCode == 0 || errors.Is(err, ErrGone) || errors.Is(err, ErrCommandLost) || errors.Is(err, ErrKernelLost) {
		return &uncancelledError{err}
	}
	return err
}

// uncancelledError matches everything that its cause does, except a context's error.
// It has no Unwrap, by which errors.Is would find one.
type uncancelledError struct{ cause error }

func (e *uncancelledError) Error() string { return e.cause.Error() }

func (e *uncancelledError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.cause, target)
}

func (e *uncancelledError) As(target any) bool { return errors.As(e.cause, target) }
