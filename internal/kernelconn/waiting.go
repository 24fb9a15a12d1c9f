package kernelconn

import "context"

// waiting identifies a context of a sandbox. The code of this context is waiting for the result of a
// tool.
type waiting struct {
	outer            *waiting
	sandbox, context string
}

type waitingKey struct{}

// WithWaiting returns a Go context for the call of a tool. The Go context records the sandbox and
// the kernel context whose code is waiting for this call.
func WithWaiting(ctx context.Context, sandboxID, contextID string) context.Context {
	outer, _ := ctx.Value(waitingKey{}).(*waiting)
	return context.WithValue(ctx, waitingKey{}, &waiting{outer, sandboxID, contextID})
}

// CheckNotWaiting returns [ErrSameContext] if the code in the context with the id contextID is
// waiting for the caller, according to ctx.
func CheckNotWaiting(ctx context.Context, sandboxID, contextID string) error {
	w, _ := ctx.Value(waitingKey{}).(*waiting)
	for ; w != nil; w = w.outer {
		if w.sandbox == sandboxID && w.context == contextID {
			return ErrSameContext
		}
	}
	return nil
}
