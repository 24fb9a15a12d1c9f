//go:build linux

package envd

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
)

// cutMessages changes the error for a message that ends before the length in its envelope. As
// in envd, the error becomes invalid_argument, because the client is at fault. The library
// would report an internal error.
type cutMessages struct{}

// WrapUnary returns next, because only messages of streams have envelopes.
func (cutMessages) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient returns next, because this package has no clients.
func (cutMessages) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler changes the error of each message that was cut off.
func (cutMessages) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, cutConn{conn})
	}
}

type cutConn struct{ connect.StreamingHandlerConn }

// Receive receives one message.
func (c cutConn) Receive(msg any) error {
	err := c.StreamingHandlerConn.Receive(msg)
	if e, ok := errors.AsType[*connect.Error](err); ok && e.Code() == connect.CodeInternal && errors.Is(e, io.ErrUnexpectedEOF) {
		return connect.NewError(connect.CodeInvalidArgument, e.Unwrap())
	}
	return err
}
