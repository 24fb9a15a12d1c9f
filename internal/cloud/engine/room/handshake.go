//go:build linux

package room

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// argv0 is the name under which the re-executed binary takes a role.
const argv0 = "e2bctl-agent"

// Descriptors of a re-executed process: its control socket and the binary.
const (
	controlFD = 3
	binaryFD  = 4
)

// handshakeTimeout bounds the wait for the hello of a re-executed binary. A program
// that does not call Reexec never sends it; one that does may be on a busy machine.
const handshakeTimeout = 10 * time.Second

// greet makes the handshake with the child: it waits for its hello and assigns it
// its role.
func (c *control) greet(ctx context.Context, r role, spec any, files ...*os.File) error {
	if err := c.hello(ctx); err != nil {
		return err
	}
	return c.appoint(ctx, r, spec, files...)
}

func (c *control) hello(ctx context.Context) error {
	defer c.deadline(ctx, handshakeTimeout)()
	_, _, err := c.expect(kindHello, 0)
	return because(ctx, err)
}

func (c *control) appoint(ctx context.Context, r role, spec any, files ...*os.File) error {
	return because(ctx, c.send(message{Kind: kindRole, Protocol: wireVersion, Role: r, Spec: encode(spec)}, files...))
}

// await waits until the child says that it is ready.
func (c *control) await(ctx context.Context, d time.Duration) error {
	defer c.deadline(ctx, d)()
	_, _, err := c.expect(kindReady, 0)
	return because(ctx, err)
}

// deadline bounds the time of receives until the returned function is called.
func (c *control) deadline(ctx context.Context, d time.Duration) func() {
	_ = c.conn.SetReadDeadline(time.Now().Add(d)) // fails only when closed, and then the read fails too
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		_ = c.conn.SetReadDeadline(time.Time{})
	}
}

// because returns ctx's cause if ctx has ended, else err.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// export makes fd the socket's descriptor again, for the program that is executed
// next.
func (c *control) export(fd int) error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	var dup error
	if err := raw.Control(func(have uintptr) { dup = unix.Dup3(int(have), fd, 0) }); err != nil {
		return err
	}
	return os.NewSyscallError("dup3", dup)
}
