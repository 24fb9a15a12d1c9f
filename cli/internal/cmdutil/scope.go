package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Closing closes c and joins the error to *err. It is meant for defer.
func Closing(c io.Closer, err *error) { *err = KeepStatus(*err, c.Close()) }

// WithClose closes c after a step that failed with err, and returns both errors.
func WithClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }

// WithLimit limits ctx to the time d, the value of the flag called name. If d is 0, there is no
// limit.
func WithLimit(ctx context.Context, name string, d Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, time.Duration(d), &limitError{flag: name, limit: d})
}

// limitError matches [context.DeadlineExceeded]. Its text names the flag of the limit that was
// reached.
type limitError struct {
	flag  string
	limit Duration
}

func (e *limitError) Error() string {
	return fmt.Sprintf("the time limit of --%s %v was reached", e.flag, &e.limit)
}

// Is reports whether target is [context.DeadlineExceeded].
func (e *limitError) Is(target error) bool { return target == context.DeadlineExceeded }
