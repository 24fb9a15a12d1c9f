//go:build linux

package wire

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

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

// registered is a context that counts the functions to be called at its end.
type registered struct {
	context.Context //nolint:containedctx // it is a context itself
	n               int
}

func (*registered) Done() <-chan struct{} { return make(chan struct{}) }

func (r *registered) AfterFunc(func()) (stop func() bool) {
	r.n++
	return func() bool { r.n--; return true }
}

// TestWaitsAreOver checks that neither the bound of a wait nor its context has an effect after it.
func TestWaitsAreOver(t *testing.T) {
	t.Parallel()
	server, child := pairOfConns(t)
	ctx := &registered{Context: t.Context()}
	must.Is(t, server.AwaitReady(ctx, time.Nanosecond), os.ErrDeadlineExceeded)
	must.Do(t, child.Send(Message{Kind: KindHello, Protocol: hello.Version}))
	must.Do(t, child.Send(Message{Kind: KindReady}))
	_, _, err := server.Expect(KindHello, 0)
	must.Do(t, err)
	must.Do(t, server.AwaitReady(ctx, HandshakeTimeout))
	if ctx.n != 0 {
		t.Errorf("the context holds %d functions after the waits, want none", ctx.n)
	}
	stop := server.Deadline(ctx, HandshakeTimeout)
	if ctx.n != 1 {
		t.Errorf("the context holds %d functions during a wait, want one", ctx.n)
	}
	stop()
}

// TestAwaitEnd checks that a message is no end, but that a hello that nobody received is none either.
func TestAwaitEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		sent []Message
		want string // "" if the child ended without an error
	}{
		{"nothing", nil, ""},
		{"hello", []Message{{Kind: KindHello}}, ""},
		{"two times hello", []Message{{Kind: KindHello}, {Kind: KindHello}}, ""},
		{"failed", []Message{{Kind: KindHello}, {Kind: KindFailed, Error: "no such disk"}}, "no such disk"},
		{"ready", []Message{{Kind: KindReady}}, `envd broke the protocol: "ready" came instead of its end`},
	} {
		server, child := pairOfConns(t)
		for _, m := range tt.sent {
			must.Do(t, child.Send(m))
		}
		child.Close()
		text := ""
		if err := server.AwaitEnd(t.Context()); err != nil {
			text = err.Error()
		}
		if text != tt.want {
			t.Errorf("%s: got the error %q, want %q", tt.name, text, tt.want)
		}
	}
}

// TestHandshakeFails checks that a child gets no role before its hello, and that its end is reported.
func TestHandshakeFails(t *testing.T) {
	t.Parallel()
	server, child := pairOfConns(t)
	must.Do(t, child.Send(Message{Kind: KindReady}))
	must.Is(t, server.Handshake(t.Context(), RoleSaver, SaveSpec{}, nil), ErrProtocol)
	must.Do(t, server.Send(Message{Kind: KindKill}))
	_, _, err := child.Expect(KindKill, 0) // the first message to it
	must.Do(t, err)
	child.Close()
	must.Is(t, server.AwaitReady(t.Context(), HandshakeTimeout), ErrPeerEnded)
	must.Is(t, server.Assign(t.Context(), RoleSaver, SaveSpec{}, nil), unix.EPIPE)
	must.Is(t, DecodeSpec([]byte(`{"layout":1}`), &SaveSpec{}), ErrProtocol)
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
