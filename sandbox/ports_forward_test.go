package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// echoing returns a service whose relays return what they receive. The relays of a port other than 5432 find nothing that
// listens. made counts the relays. ended receives a value for each relay that has ended.
func echoing(t *testing.T) (s *service, made *atomic.Uint32, ended <-chan bool) {
	t.Helper()
	s = newService(t)
	over := make(chan bool, 10)
	var relays [10]chan []byte
	for i := range relays {
		relays[i] = make(chan []byte, 10)
	}
	made = new(atomic.Uint32)
	s.start = func(ctx context.Context, r *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
		pid := made.Add(1)
		_ = started(stream, pid)
		if args := r.GetProcess().GetArgs(); args[len(args)-1] != "5432" {
			return endedWith(stream, relayRefused)
		}
		defer func() { over <- true }()
		_ = stdout(stream, []byte("+"))
		for {
			select {
			case data := <-relays[pid]:
				if string(data) == "end" {
					return endedWith(stream, 0)
				}
				if string(data) == "break" {
					return endedWith(stream, 1)
				}
				_ = stdout(stream, data)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	s.input = func(r *process.SendInputRequest) {
		relays[r.GetProcess().GetPid()] <- r.GetInput().GetStdin()
	}
	return s, made, over
}

func endedWith(stream *connect.ServerStream[process.StartResponse], code int32) error {
	return ended(stream, code, "exit status")
}

// dialNear connects to a forwarding.
func dialNear(t *testing.T, f *Forwarding) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.Addr().String())
	must.Do(t, err)
	must.Do(t, conn.SetDeadline(patience.Deadline()))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a text, and returns what comes back.
func exchange(conn net.Conn, text string) (string, error) {
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	back := make([]byte, 4)
	_, err := io.ReadFull(conn, back)
	return string(back), err
}

// TestForward checks the connections of a forwarding: how many are open at once, and how each of them ends.
func TestForward(t *testing.T) {
	t.Parallel()
	s, made, over := echoing(t)
	sb := s.sandbox()
	failed := make(chan error, 10)
	f, err := sb.Forward(t.Context(), "127.0.0.1:0", 5432, &ForwardParams{MaxConnections: 2, Failed: func(err error) { failed <- err }})
	must.Do(t, err)
	first, second := dialNear(t, f), dialNear(t, f)
	for range 2 {
		for _, conn := range []net.Conn{first, second} {
			if got, err := exchange(conn, "text"); err != nil || got != "text" {
				t.Errorf("got %q and error %v, want the same text", got, err)
			}
		}
	}
	third := dialNear(t, f)
	_, err = io.WriteString(third, "late")
	must.Do(t, err)
	if n := made.Load(); n != 2 {
		t.Errorf("%d relays run, want 2 while two connections are open", n)
	}
	must.Do(t, first.Close()) // the client ends it
	patience.Receive(t, "the end of a relay", over)
	back := make([]byte, 4)
	if _, err := io.ReadFull(third, back); err != nil || string(back) != "late" {
		t.Errorf("got %q and error %v from the connection that waited", back, err)
	}
	_, err = io.WriteString(second, "end") // the server ends it
	must.Do(t, err)
	if n, err := second.Read(back); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d bytes and error %v after the server's end, want a usual end", n, err)
	}
	if len(failed) > 0 {
		t.Errorf("got the failure %v of connections that ended as usual", <-failed)
	}
	_, err = io.WriteString(third, "break")
	must.Do(t, err)
	if _, err := third.Read(back); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got error %v from a broken connection, want a reset", err)
	}
	if err := patience.Receive(t, "the failure", failed); err == nil || !strings.HasPrefix(err.Error(), "sandbox: forward port 5432 of "+testID+": a forwarded connection failed: ") {
		t.Errorf("got the failure %v", err)
	}
	fourth := dialNear(t, f)
	_, err = exchange(fourth, "text")
	must.Do(t, err)
	for range 2 {
		must.Do(t, f.Close())
	}
	if _, err := fourth.Read(back); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got error %v after Close, want a reset", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.Addr().String()); err == nil {
		t.Error("a connection was made after Close")
		_ = conn.Close()
	}
	if len(failed) > 0 {
		t.Errorf("got the failure %v of a connection that Close has ended", <-failed)
	}
	must.Do(t, sb.Close())
}

// TestForwardReportsFailures checks the log of a connection that cannot be made, and that the end of the handle ends everything.
func TestForwardReportsFailures(t *testing.T) {
	t.Parallel()
	s, _, _ := echoing(t)
	var log bytes.Buffer
	// With retries: net/http may give Close the connection of a call that Close has just cancelled.
	sb, err := s.client(WithLogger(slog.New(slog.NewTextHandler(&log, nil))), WithMaxRetries(3)).Create(t.Context())
	must.Do(t, err)
	defer sb.Close()
	f, err := sb.Forward(t.Context(), "127.0.0.1:0", 1, nil)
	must.Do(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.Addr().String())
	if err == nil { // otherwise the reset has come already
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got error %v from a closed port, want a reset", err)
	}
	open, err := sb.Forward(t.Context(), "127.0.0.1:0", 5432, nil)
	must.Do(t, err)
	still := dialNear(t, open)
	_, err = exchange(still, "text")
	must.Do(t, err)
	must.Do(t, sb.Close())
	if _, err := still.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got error %v after Close of the handle, want a reset", err)
	}
	for _, f := range []*Forwarding{f, open} {
		must.Do(t, f.Close())
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.Addr().String()); err == nil {
			t.Error("a connection was made after Close of the handle")
			_ = conn.Close()
		}
	}
	text := log.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=WARN msg="a forwarded connection failed" sandbox=`+testID+" port=1 error=") || !strings.Contains(text, "nothing listens on port 1") {
		t.Errorf("got the log %q, want one warning about the closed port", text)
	}
}

// TestForwardArguments checks the bounds of the arguments, and the errors of forwardings that do not begin.
func TestForwardArguments(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
		_ = started(stream, 1)
		return ended(stream, relayRefused, "exit status")
	}
	sb := s.sandbox()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer taken.Close()
	closed := s.sandbox()
	must.Do(t, closed.Detach())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		sb      *Sandbox
		address string
		port    int
		most    int
		want    error
		text    string
		slots   int
	}{
		"port 0":           {port: 0, want: api.ErrInvalidArgument, text: "forward port 0 of " + testID},
		"port 1":           {port: 1, slots: DefaultMaxConnections},
		"port 65535":       {port: 65535, most: 1, slots: 1},
		"port 65536":       {port: 65536, want: api.ErrInvalidArgument, text: "forward port 65536 of " + testID},
		"a negative limit": {port: 1, most: -1, want: api.ErrInvalidArgument, text: "ForwardParams.MaxConnections is negative: -1"},
		"a taken address":  {port: 1, address: taken.Addr().String(), want: syscall.EADDRINUSE, text: "sandbox: forward port 1 of " + testID + ": listen"},
		"a closed handle":  {port: 1, sb: closed, want: ErrClosed, text: testID},
	} {
		if tt.sb == nil {
			tt.sb = sb
		}
		if tt.address == "" {
			tt.address = "127.0.0.1:0"
		}
		f, err := tt.sb.Forward(t.Context(), tt.address, tt.port, &ForwardParams{MaxConnections: tt.most})
		if (err == nil) != (tt.want == nil) || err != nil && (!errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, tt.want, tt.text)
		}
		if f == nil {
			continue
		}
		if cap(f.slots) != tt.slots {
			t.Errorf("%s: got at most %d connections, want %d", name, cap(f.slots), tt.slots)
		}
		must.Do(t, f.Close())
	}
	for port, want := range map[int]string{-1: "-1 is not a port", 0: "0 is not a port", 1: "nothing listens on port 1", 65535: "nothing listens on port 65535", 65536: "65536 is not a port"} {
		if _, err := sb.Dial(t.Context(), port); err == nil || !strings.HasSuffix(err.Error(), want+" of the sandbox") && !strings.HasSuffix(err.Error(), want) || !strings.HasPrefix(err.Error(), "sandbox: dial port") {
			t.Errorf("dial port %d: got error %v, want %q", port, err, want)
		}
	}
	_, err = closed.Dial(t.Context(), 1)
	must.Is(t, err, ErrClosed)
	_, err = sb.Dial(ended, 1)
	must.Is(t, err, context.Canceled)
}

// TestAddressesOfConnections checks the addresses of a connection to a port.
func TestAddressesOfConnections(t *testing.T) {
	t.Parallel()
	var conn net.Conn = &portConn{port: portAddr{testID, 5432}}
	for _, tt := range []struct {
		got  net.Addr
		want string
	}{{conn.RemoteAddr(), testID + ":5432"}, {conn.LocalAddr(), "local:0"}} {
		if tt.got.Network() != "tcp" || tt.got.String() != tt.want {
			t.Errorf("got %s %s, want tcp %s", tt.got.Network(), tt.got, tt.want)
		}
	}
}
