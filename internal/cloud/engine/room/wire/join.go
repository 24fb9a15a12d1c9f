package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Bounds of one sandbox, enforced by the server and kept by its envd.
const (
	MaxStreams  = 1024 // connections to ports of its programs, and as many to its own ports
	MaxDialling = 128  // connections out of it that are being made
	DialTimeout = 10 * time.Second
)

// Answers of envd to a dial: one byte on the stream.
const (
	StatusConnected = 0
	StatusClosed    = 1
	StatusTooMany   = 2
)

// DialLoopback connects to the listener on the port in this network namespace.
func DialLoopback(ctx context.Context, port uint16) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: DialTimeout}
	to, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	if err != nil {
		to, err = dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(netip.IPv6Loopback(), port))
	}
	return to, err
}

// StatusOf returns the answer of envd to a dial that failed with err.
func StatusOf(err error) byte {
	if errors.Is(err, engine.ErrTooMany) {
		return StatusTooMany
	}
	return StatusClosed
}

// StatusError returns the error for an answer of envd to a dial.
func StatusError(status byte) error {
	switch status {
	case StatusConnected:
		return nil
	case StatusTooMany:
		return fmt.Errorf("%w: the daemon in it has no descriptors for another connection", engine.ErrTooMany)
	}
	return engine.ErrPortClosed
}

// copySize limits the bytes that are copied at once in one direction of a connection.
const copySize = 16 << 10

// Join copies in both directions until both have ended, and closes both.
func Join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var back sync.WaitGroup
	back.Go(func() { pour(a, b) })
	pour(b, a)
	back.Wait()
}

// pour copies from from to to, and passes the end on if to can be closed in one direction. An
// error ends both directions: there is nobody to whom it could be reported.
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

// CauseOf returns ctx's cause if ctx has ended, else err.
func CauseOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
