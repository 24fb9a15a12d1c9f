package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Answers of the daemon in a sandbox to a request to dial. An answer is one byte on the stream.
const (
	StatusConnected = 0
	StatusClosed    = 1
	StatusTooMany   = 2
)

// StatusOf returns the daemon's answer to a request to dial, if the dial failed with err.
func StatusOf(err error) byte {
	if errors.Is(err, engine.ErrTooMany) {
		return StatusTooMany
	}
	return StatusClosed
}

// StatusError returns the error for a daemon's answer to a request to dial.
func StatusError(status byte) error {
	switch status {
	case StatusConnected:
		return nil
	case StatusTooMany:
		return fmt.Errorf("%w: the daemon in it has no descriptors for another connection", engine.ErrTooMany)
	}
	return engine.ErrPortClosed
}

// DialLoopback connects to the listener on the port in this network namespace.
func DialLoopback(ctx context.Context, port uint16) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: DialTimeout}
	to, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	if err != nil {
		to, err = dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(netip.IPv6Loopback(), port))
	}
	return to, err
}
