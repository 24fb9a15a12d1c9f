package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Closing is for defer: it closes c and joins the error to *err.
func Closing(c io.Closer, err *error) { *err = KeepStatus(*err, c.Close()) }

// WithClose closes the remains of a failed step, and returns both errors.
func WithClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }

// WithLimit limits ctx to the value of the flag called name, unless that is 0.
func WithLimit(ctx context.Context, name string, d Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, time.Duration(d), &limitError{flag: name, limit: d})
}

// limitError is [context.DeadlineExceeded] in the words of the command: it names
// the flag of the limit that was reached.
type limitError struct {
	flag  string
	limit Duration
}

func (e *limitError) Error() string {
	return fmt.Sprintf("the time limit of --%s %v was reached", e.flag, &e.limit)
}

// Is matches [context.DeadlineExceeded].
func (e *limitError) Is(target error) bool { return target == context.DeadlineExceeded }
