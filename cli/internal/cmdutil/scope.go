package cmdutil

import (
	"context"
	"errors"
	"io"
	"time"
)

// Closing is for defer: it closes c and joins the error to *err.
func Closing(c io.Closer, err *error) { *err = KeepStatus(*err, c.Close()) }

// WithClose closes what a failed step leaves behind, and returns both errors.
func WithClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }

// WithLimit limits ctx to d, unless d is 0.
func WithLimit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}
