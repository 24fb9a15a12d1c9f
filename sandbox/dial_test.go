package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// relayed returns a service whose relay calls do.
func relayed(t *testing.T, do func(context.Context, *connect.ServerStream[process.StartResponse]) error) *service {
	t.Helper()
	s := newService(t)
	s.start = func(ctx context.Context, r *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
		if args := r.GetProcess().GetArgs(); r.GetProcess().GetCmd() != "/bin/bash" || args[len(args)-1] != "5432" || !r.GetStdin() {
			t.Errorf("started %v", r)
		}
		return do(ctx, stream)
	}
	return s
}

// If a relay cannot start, Dial returns an error that says why.
func TestDialRefused(t *testing.T) {
	t.Parallel()
	type stream = connect.ServerStream[process.StartResponse]
	for name, test := range map[string]struct {
		do   func(context.Context, *stream) error
		want string
		is   error
	}{
		"nothing listens": {func(_ context.Context, s *stream) error {
			return errors.Join(started(s, 7), stderr(s, []byte("connect: Connection refused\n")), ended(s, relayRefused, "exit status 7"))
		}, "nothing listens on port 5432", ErrPortClosed},
		"no bash": {func(_ context.Context, s *stream) error {
			return errors.Join(started(s, 7), stderr(s, []byte("no such file\n")), ended(s, 127, "exit status 127"))
		}, "the relay in the sandbox failed: exit status 127: no such file", nil},
		"another first word": {func(_ context.Context, s *stream) error { return stdout(s, []byte("+")) }, "first message", nil},
		"process 0":          {func(_ context.Context, s *stream) error { return started(s, 0) }, "first message", nil},
		"no word":            {func(context.Context, *stream) error { return nil }, "its stream broke", ErrCommandLost},
		"cut":                {func(_ context.Context, s *stream) error { return started(s, 7) }, "its stream broke", ErrCommandLost},
		"refused": {func(context.Context, *stream) error {
			return connect.NewError(connect.CodeResourceExhausted, errors.New("too many processes"))
		}, "too many processes", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := relayed(t, test.do).sandbox().Dial(t.Context(), 5432)
			if conn != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want no connection and an error with %q", conn, err, test.want)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.is)
			}
		})
	}
}

// TestDialCut checks that a connection that breaks does not look as if the server had
// closed it, and that the bytes that arrived before are not lost.
func TestDialCut(t *testing.T) {
	t.Parallel()
	s := relayed(t, func(_ context.Context, s *connect.ServerStream[process.StartResponse]) error {
		return errors.Join(started(s, 7), stdout(s, []byte("+he")), stdout(s, []byte("llo")))
	})
	conn, err := s.sandbox().Dial(t.Context(), 5432)
	must.Do(t, err)
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if string(got) != "hello" || !errors.Is(err, ErrCommandLost) {
		t.Errorf("%q, %v", got, err)
	}
	patience.Until(t, "the relay has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.signals, []uint32{7})
	})
}

// Input that does not arrive ends the connection, because bytes would be missing.
func TestDialInputLost(t *testing.T) {
	t.Parallel()
	s := relayed(t, func(ctx context.Context, s *connect.ServerStream[process.StartResponse]) error {
		_ = errors.Join(started(s, 7), stdout(s, []byte("+")))
		<-ctx.Done()
		return ctx.Err()
	})
	s.input = func(*process.SendInputRequest) { panic("the daemon fails") }
	conn, err := s.sandbox().Dial(t.Context(), 5432)
	must.Do(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
}

// TestDialEndsItsInput checks that the end of the relay ends an input that the daemon does not answer.
func TestDialEndsItsInput(t *testing.T) {
	t.Parallel()
	sent, over := make(chan struct{}), make(chan struct{})
	s := relayed(t, func(_ context.Context, s *connect.ServerStream[process.StartResponse]) error {
		_ = errors.Join(started(s, 7), stdout(s, []byte("+")))
		<-sent
		return ended(s, 0, "exit status 0")
	})
	s.input = func(*process.SendInputRequest) { close(sent); <-over }
	defer close(over)
	sb := s.sandbox()
	conn, err := sb.Dial(t.Context(), 5432)
	must.Do(t, err)
	_, err = conn.Write([]byte("x"))
	must.Do(t, err)
	_, err = conn.Read(make([]byte, 1))
	must.Is(t, err, io.EOF)
	patience.Until(t, "the connection is over", func() bool {
		sb.mu.Lock()
		defer sb.mu.Unlock()
		return len(sb.calls) == 0
	})
}

// A call that is cancelled while the relay starts returns at once, and the relay is
// ended as soon as its pid is known.
func TestDialCancelled(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	s := relayed(t, func(ctx context.Context, s *connect.ServerStream[process.StartResponse]) error {
		close(asked)
		<-release
		_ = started(s, 7)
		<-ctx.Done()
		return ctx.Err()
	})
	sb := s.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := sb.Dial(ctx, 5432); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(release)
	patience.Until(t, "the relay has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.signals, []uint32{7})
	})
}

// TestDialOfAClosedHandle closes a sandbox's handle while nobody reads the relay's output: the close
// ends the connection, and does not wait for a reader.
func TestDialOfAClosedHandle(t *testing.T) {
	t.Parallel()
	s := relayed(t, func(ctx context.Context, s *connect.ServerStream[process.StartResponse]) error {
		_ = errors.Join(started(s, 7), stdout(s, []byte("+unread")))
		<-ctx.Done()
		return ctx.Err()
	})
	sb := s.sandbox()
	conn, err := sb.Dial(t.Context(), 5432)
	must.Do(t, err)
	defer conn.Close()
	must.Do(t, sb.Close())
	_, err = conn.Read(make([]byte, 1))
	must.Is(t, err, ErrClosed)
	_, err = conn.Write([]byte("x"))
	must.Is(t, err, ErrClosed)
}

// TestReasonsOfAConnection checks the errors of both directions of a connection after its tunnel ended.
func TestReasonsOfAConnection(t *testing.T) {
	t.Parallel()
	lost := errors.New("the relay was lost")
	for _, test := range []struct {
		ended       error // nil: the caller closed the connection
		read, write error
	}{
		{nil, net.ErrClosed, net.ErrClosed},
		{io.EOF, io.EOF, syscall.EPIPE},
		{lost, lost, lost},
	} {
		near, far := net.Pipe()
		c := &portConn{Conn: near, port: portAddr{"id", 1}}
		if test.ended != nil {
			c.failed.Store(&test.ended)
		}
		must.Do(t, far.Close())
		_, read := c.Read(make([]byte, 1))
		_, write := c.Write([]byte("x"))
		if !errors.Is(read, test.read) || !errors.Is(write, test.write) || (read == io.EOF) != (test.read == io.EOF) { //nolint:errorlint // io.EOF is returned as it is
			t.Errorf("after %v: a read got %v and a write %v, want %v and %v", test.ended, read, write, test.read, test.write)
		}
		must.Do(t, near.Close())
	}
}
