package kernelconn

import "context"

// waiting is a context of a sandbox. Its code is waiting for the result of a tool.
type waiting struct {
	outer            *waiting
	sandbox, context string
}

type waitingKey struct{}

// WithWaiting records in the context of a tool's call the code that is waiting for
// the tool.
func WithWaiting(ctx context.Context, sandboxID, contextID string) context.Context {
	outer, _ := ctx.Value(waitingKey{}).(*waiting)
	return context.WithValue(ctx, waitingKey{}, &waiting{outer, sandboxID, contextID})
}

// CheckNotWaiting returns [ErrSameContext] if the code of the context is waiting
// for the caller.
func CheckNotWaiting(ctx context.Context, sandboxID, contextID string) error {
	w, _ := ctx.Value(waitingKey{}).(*waiting)
	for ; w != nil; w = w.outer {
		if w.sandbox == sandboxID && w.context == contextID {
			return ErrSameContext
		}
	}
	return nil
}
