package wire

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of one sandbox, enforced by the server and kept by its envd.
const (
	MaxStreams  = 1024 // connections to its ports
	MaxDialling = 128  // connections out of it that are not yet made
	DialTimeout = 10 * time.Second
)

// Answers of envd to a dial: one byte on the stream.
const (
	StatusConnected = 0
	StatusClosed    = 1
)

// Join copies in both directions until both have ended, and closes both.
func Join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var back sync.WaitGroup
	back.Go(func() { pour(a, b) })
	pour(b, a)
	back.Wait()
}

// pour copies from from to to, and passes the end on if to can be closed in one
// direction. An error ends both directions: there is nobody to report it to.
func pour(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only if the connection is gone, which the peer sees anyway
	}
}

// CauseOf returns ctx's cause if ctx has ended, else err.
func CauseOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
