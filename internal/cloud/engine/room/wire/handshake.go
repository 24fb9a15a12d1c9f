//go:build linux

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
)

// HandshakeTimeout bounds the wait for the hello of a re-executed binary. A program without package
// hello never sends a hello. On a busy machine, a program with package hello may send it late.
const HandshakeTimeout = 10 * time.Second

// Handshake waits for the hello of the child, and then assigns a role to the child.
func (c *Conn) Handshake(ctx context.Context, r Role, spec any, files *Files) error {
	if err := c.AwaitHello(ctx); err != nil {
		return err
	}
	return c.Assign(ctx, r, spec, files)
}

// AwaitHello waits until the child has started.
func (c *Conn) AwaitHello(ctx context.Context) error {
	defer c.Deadline(ctx, HandshakeTimeout)()
	_, _, err := c.Expect(KindHello, 0)
	return link.CauseOf(ctx, err)
}

// Assign assigns a role to a child that has sent its hello.
func (c *Conn) Assign(ctx context.Context, r Role, spec any, files *Files) error {
	return link.CauseOf(ctx, c.SendFiles(Message{Kind: KindRole, Protocol: hello.Version, Role: r, Spec: Encode(spec)}, files))
}

// AwaitReady waits until the child reports that it is ready.
func (c *Conn) AwaitReady(ctx context.Context, d time.Duration) error {
	defer c.Deadline(ctx, d)()
	_, _, err := c.Expect(KindReady, 0)
	return link.CauseOf(ctx, err)
}

// AwaitEnd waits until the child has ended without an error.
func (c *Conn) AwaitEnd(ctx context.Context) error {
	defer c.Deadline(ctx, HandshakeTimeout)()
	m, _, err := c.Receive(0)
	for err == nil && m.Kind == KindHello { // nobody has received it
		m, _, err = c.Receive(0)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil
	case err == nil && m.Kind == KindFailed:
		err = errors.New(m.Error)
	case err == nil:
		err = fmt.Errorf("%w: %q came instead of its end", ErrProtocol, m.Kind)
	}
	return link.CauseOf(ctx, err)
}

// Deadline bounds the time of receives until the returned function is called.
func (c *Conn) Deadline(ctx context.Context, d time.Duration) func() {
	_ = c.conn.SetReadDeadline(time.Now().Add(d)) // fails only when closed, and then the read fails too
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		_ = c.conn.SetReadDeadline(time.Time{})
	}
}

// Keep makes fd another descriptor of the socket, so that no other file gets this number. Otherwise
// an os.File that had the number and was never closed would later close the new file.
func (c *Conn) Keep(fd int) error { return c.duplicate(fd, unix.O_CLOEXEC) }

// Export makes fd the socket's descriptor for the program that is executed next.
func (c *Conn) Export(fd int) error { return c.duplicate(fd, 0) }

func (c *Conn) duplicate(fd, flags int) error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	var dup error
	if err := raw.Control(func(have uintptr) { dup = unix.Dup3(int(have), fd, flags) }); err != nil {
		return err
	}
	return os.NewSyscallError("dup3", dup)
}
