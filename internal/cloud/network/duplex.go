package network

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// duplex is one end of a connection in memory. Its two directions can end separately, as in
// TCP.
type duplex struct {
	in, out net.Conn
	closed  context.CancelFunc
}

// newDuplex returns both ends of a connection. ctx ends when near is closed.
func newDuplex(parent context.Context) (ctx context.Context, near, far net.Conn) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	toFar, fromNear := net.Pipe()
	toNear, fromFar := net.Pipe()
	return ctx, &duplex{toNear, toFar, cancel}, &duplex{fromNear, fromFar, func() {}}
}

func (d *duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d *duplex) Write(p []byte) (int, error) { return d.out.Write(p) }
func (d *duplex) CloseWrite() error           { return d.out.Close() }

// Close closes both directions. It returns nil.
func (d *duplex) Close() error {
	d.closed()
	_ = d.in.Close() // closing a pipe never fails
	return d.out.Close()
}

func (d *duplex) LocalAddr() net.Addr  { return d.in.LocalAddr() }
func (d *duplex) RemoteAddr() net.Addr { return d.in.RemoteAddr() }

// SetReadDeadline sets the deadline and returns nil. A pipe refuses a deadline after one of its
// ends was closed. No deadline is needed then, because no read waits.
func (d *duplex) SetReadDeadline(t time.Time) error {
	_ = d.in.SetReadDeadline(t)
	return nil
}

// SetWriteDeadline sets the deadline and returns nil, for the same reason as SetReadDeadline.
func (d *duplex) SetWriteDeadline(t time.Time) error {
	_ = d.out.SetWriteDeadline(t)
	return nil
}

// SetDeadline sets the deadline and returns nil, for the same reason as SetReadDeadline.
func (d *duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.SetReadDeadline(t), d.SetWriteDeadline(t))
}

// join copies in both directions until both have ended, or until ctx ends. Then it closes a and
// b.
func join(ctx context.Context, a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	stop := context.AfterFunc(ctx, func() { _ = a.Close(); _ = b.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() { pipe(a, b) })
	pipe(b, a)
	back.Wait()
}
