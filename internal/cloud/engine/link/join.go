package link

import (
	"context"
	"io"
	"net"
	"sync"
)

// copySize is the size of the buffer, in bytes, for each direction of a connection.
const copySize = 16 << 10

// Join copies between a and b in both directions until both directions have ended. Then it closes
// both connections. Data from a needs no other goroutine, so a is best the side that sends first.
func Join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var back sync.WaitGroup
	back.Go(func() { pour(a, b) })
	pour(b, a)
	back.Wait()
}

// pour copies data from one connection to the other. When the data ends and to can be closed in one
// direction, pour closes the sending half of to. An error ends both directions, because pour cannot
// report an error to anybody.
func pour(to, from net.Conn) {
	// Only the methods of net.Conn are used: with those of a socket, the copy would go through a
	// pipe and take two more descriptors in each direction.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copySize))
	if err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only if the connection is gone, which the peer sees anyway
	}
}

// CauseOf returns the cause of ctx if ctx has ended, and err otherwise.
func CauseOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
