//go:build linux

package wire

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestHandshake checks that a child learns its role, its specification and the version of the protocol.
func TestHandshake(t *testing.T) {
	t.Parallel()
	server, child := pairOfConns(t)
	must.Do(t, child.Send(Message{Kind: KindHello, Protocol: hello.Version}))
	must.Do(t, server.Handshake(t.Context(), RoleSaver, SaveSpec{Layout: "one id"}, nil))
	m, _, err := child.Expect(KindRole, 0)
	must.Do(t, err)
	if want := string(Encode(SaveSpec{Layout: "one id"})); m.Role != RoleSaver || m.Protocol != hello.Version || string(m.Spec) != want {
		t.Errorf("got %+v, want the role %s of protocol %v with %s", m, RoleSaver, hello.Version, want)
	}
}

// TestWaitsEndWithTheirContext checks that a child that is silent holds nobody up, and that the error
// is that of the context.
func TestWaitsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	tooLate := errors.New("too late")
	for name, wait := range map[string]func(*Conn, context.Context) error{
		"hello": (*Conn).AwaitHello,
		"ready": func(c *Conn, ctx context.Context) error { return c.AwaitReady(ctx, HandshakeTimeout) },
		"end":   (*Conn).AwaitEnd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := pairOfConns(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(tooLate)
			waited := make(chan error, 1)
			go func() { waited <- wait(server, ctx) }()
			must.Is(t, patience.Receive(t, "the end of the wait", waited), tooLate)
		})
	}
}

// TestAttributes checks that read-only directories are mounted read-only, and that in no volume
// set-user-ID programs and device files have an effect.
func TestAttributes(t *testing.T) {
	t.Parallel()
	const closed = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for v, want := range map[Volume]uint64{
		{}:                             closed,
		{ReadOnly: true}:               closed | unix.MOUNT_ATTR_RDONLY,
		{ReadOnly: true, Opened: true}: closed | unix.MOUNT_ATTR_RDONLY,
	} {
		if got := v.Attributes(); got != want {
			t.Errorf("%+v: got %#x, want %#x", v, got, want)
		}
	}
	if want := uint64(closed | unix.MOUNT_ATTR_RDONLY); LayerAttributes != want {
		t.Errorf("layers: got %#x, want %#x", LayerAttributes, want)
	}
}
