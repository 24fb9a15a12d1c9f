package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inside runs the other end of a test's tunnel.
type inside func(t *testing.T, g *Guest)

// tunnel connects a server to another end that is ready and then runs do.
func tunnel(t *testing.T, o Options, do inside) *Server {
	t.Helper()
	ours, theirs := net.Pipe()
	var work sync.WaitGroup
	work.Go(func() {
		g, err := NewLink(theirs).Join()
		if err != nil {
			t.Errorf("join: %v", err)
			return
		}
		if err := g.Ready(); err != nil {
			t.Errorf("ready: %v", err)
			return
		}
		do(t, g)
	})
	s, err := Open(t.Context(), ours, o)
	must.Do(t, err)
	t.Cleanup(func() {
		s.Close()
		_ = theirs.Close()
		work.Wait()
	})
	return s
}

// echoes sends back all that it reads from connections to port 7.
func echoes(_ *testing.T, g *Guest) {
	for {
		conn, err := g.Accept()
		if err != nil {
			return
		}
		go func() {
			port, err := conn.Port()
			status := []byte{link.StatusConnected}
			if err != nil || port != 7 {
				status[0] = link.StatusClosed
			}
			_, _ = conn.Write(status)
			if status[0] == link.StatusConnected {
				_, _ = io.Copy(conn, conn)
				_ = conn.CloseWrite()
			}
			_ = conn.Close()
		}()
	}
}

// TestDial checks that connections carry data and ends in both directions.
func TestDial(t *testing.T) {
	t.Parallel()
	s := tunnel(t, Options{}, echoes)
	data := bytes.Repeat([]byte("some data "), 1<<17) // more than a window
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			conn, err := s.Dial(t.Context(), 7)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			go func() {
				_, _ = conn.Write(data)
				_ = conn.(*dialled).CloseWrite()
			}()
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
				t.Errorf("got %d bytes, %v, want %d that are the same", len(got), err, len(data))
			}
		})
	}
	all.Wait()
	if _, err := s.Dial(t.Context(), 8); !errors.Is(err, engine.ErrPortClosed) {
		t.Errorf("another port: got %v, want closed", err)
	}
	if _, err := s.Dial(t.Context(), 1<<16); !errors.Is(err, engine.ErrPortClosed) {
		t.Errorf("no port: got %v, want closed", err)
	}
}

// TestTooMany checks that connections over the bound are refused for that reason, as are those
// for which the other end has no room, that connections to ports of programs keep none out of
// the sandbox's own ports, and that there is room when one is closed.
func TestTooMany(t *testing.T) {
	t.Parallel()
	s := tunnel(t, Options{}, func(_ *testing.T, g *Guest) {
		for {
			conn, err := g.Accept()
			if err != nil {
				return
			}
			go func() {
				port, _ := conn.Port()
				if port == 8 {
					_, _ = conn.Write([]byte{link.StatusTooMany})
					_ = conn.Close()
					return
				}
				_, _ = conn.Write([]byte{link.StatusConnected})
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	})
	if _, err := s.Dial(t.Context(), 8); !errors.Is(err, engine.ErrTooMany) {
		t.Errorf("the other end has no room: got %v, want %v", err, engine.ErrTooMany)
	}
	var release func()
	for range link.MaxStreams {
		release, _ = s.slots.Take(7) // as a connection does
	}
	if _, err := s.Dial(t.Context(), 7); !errors.Is(err, engine.ErrTooMany) {
		t.Errorf("one more: got %v, want %v", err, engine.ErrTooMany)
	}
	release()
	for _, port := range []int{7, protocol.PortEnvd, protocol.PortInterpreter, protocol.PortJupyter} {
		conn, err := s.Dial(t.Context(), port)
		if err != nil {
			t.Fatalf("port %d, after one was closed: %v", port, err)
		}
		defer conn.Close()
	}
}

// TestAbandoned checks that a program that writes without end to a connection gets an error if
// the other end no longer reads.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 2)
	s := tunnel(t, Options{}, func(_ *testing.T, g *Guest) {
		for range 2 {
			conn, err := g.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = conn.Port()
				_, _ = conn.Write([]byte{link.StatusConnected})
				go func() { _, _ = io.Copy(io.Discard, conn) }() // as a program that joins two connections
				for err == nil {
					_, err = conn.Write(make([]byte, 1<<10))
				}
				ended <- err
			}()
		}
	})
	for _, half := range []bool{false, true} {
		conn, err := s.Dial(t.Context(), 7)
		must.Do(t, err)
		if half {
			_ = conn.(*dialled).CloseWrite()
		}
		_, _ = io.ReadFull(conn, make([]byte, 10))
		_ = conn.Close()
		if err := <-ended; err == nil {
			t.Error("the writer was not told")
		}
	}
}

// TestReadAfterClose checks that data or an end that arrives at a closed connection does not look
// like the end of the data: its reader was cut off.
func TestReadAfterClose(t *testing.T) {
	t.Parallel()
	for name, last := range map[string][]byte{"end": nil, "data": []byte("late")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answered := make(chan struct{}, 2)
			s := tunnel(t, Options{}, func(_ *testing.T, g *Guest) {
				for range 2 {
					conn, err := g.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Port()
					_, _ = conn.Write([]byte{link.StatusConnected})
					go func() {
						_, _ = io.Copy(io.Discard, conn) // until the server closes it
						_, _ = conn.Write(last)
						_ = conn.CloseWrite()
						answered <- struct{}{}
					}()
				}
			})
			conn, err := s.Dial(t.Context(), 7)
			must.Do(t, err)
			_ = conn.Close()
			<-answered
			if _, err := s.Dial(t.Context(), 7); err != nil { // its answer comes after everything else
				t.Fatal(err)
			}
			if n, err := conn.Read(make([]byte, 10)); n > 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %d bytes, %v, want the error of a closed connection", n, err)
			}
		})
	}
}

// TestShut checks that a frozen sandbox has no connections, and others when it is thawed.
func TestShut(t *testing.T) {
	t.Parallel()
	s := tunnel(t, Options{}, echoes)
	conn, err := s.Dial(t.Context(), 7)
	must.Do(t, err)
	s.Entrance().Shut()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the freeze")
	}
	if _, err := s.Dial(t.Context(), 7); !errors.Is(err, engine.ErrFrozen) {
		t.Errorf("got %v, want frozen", err)
	}
	s.Entrance().Open()
	conn, err = s.Dial(t.Context(), 7)
	must.Do(t, err)
	s.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the tunnel")
	}
	if _, err := s.Dial(t.Context(), 7); !errors.Is(err, engine.ErrGone) {
		t.Errorf("got %v, want gone", err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("got %v, want no reason but Close", err)
	}
}

type denying struct{ engine.Egress }

func (denying) Dial(_ context.Context, host string, _ uint16) (net.Conn, error) {
	if host == "allowed.example" {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write([]byte("hello"))
			_ = theirs.Close()
		}()
		return ours, nil
	}
	return nil, denied{}
}

type denied struct{}

func (denied) Error() string { return "denied by a rule" }
func (denied) Denied() bool  { return true }

// TestLeave checks the answers to connections out of a sandbox.
func TestLeave(t *testing.T) {
	t.Parallel()
	checked := make(chan struct{})
	tunnel(t, Options{Egress: denying{}}, func(t *testing.T, g *Guest) {
		defer close(checked)
		if !g.Hello.Egress {
			t.Error("the other end is not told that there is a way out")
		}
		conn, err := g.Dial(t.Context(), "allowed.example", 80)
		if err != nil {
			t.Error(err)
			return
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
		_ = conn.Close()
		_, err = g.Dial(t.Context(), "other.example", 80)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || !refused.Denied() || refused.Reason != "denied by a rule" {
			t.Errorf("got %v, want it denied", err)
		}
		for _, wrong := range []string{"", strings.Repeat("x", 256)} {
			if _, err := g.Dial(t.Context(), wrong, 80); err == nil {
				t.Errorf("%.10q was connected", wrong)
			}
		}
	})
	<-checked
	checked = make(chan struct{})
	tunnel(t, Options{}, func(t *testing.T, g *Guest) {
		defer close(checked)
		_, err := g.Dial(t.Context(), "allowed.example", 80)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || !refused.Denied() {
			t.Errorf("without egress: got %v, want it denied", err)
		}
	})
	<-checked
}

// TestHostile checks that an end that breaks the protocol is cut off, with the reason.
func TestHostile(t *testing.T) {
	t.Parallel()
	raw := func(c *Conn, data ...byte) { _, _ = c.Write(data) }
	for _, tt := range []struct {
		name string
		do   inside
	}{
		{"a report that is too long", func(_ *testing.T, g *Guest) { raw(g.control, 0xff, 0xff, 0xff, 0xff) }},
		{"a report that is none", func(_ *testing.T, g *Guest) { raw(g.control, 0, 0, 0, 1, 'x') }},
		{"an unknown report", func(_ *testing.T, g *Guest) { _ = send(g.control, report{Kind: "other"}) }},
		{"too many connections", func(_ *testing.T, g *Guest) {
			for {
				if _, err := open(g.session); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := tunnel(t, Options{}, tt.do)
			<-s.Done()
			if err := s.Err(); !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v, want %v", err, ErrProtocol)
			}
		})
	}
	t.Run("a chunk that is too long", func(t *testing.T) {
		t.Parallel()
		s := tunnel(t, Options{}, func(_ *testing.T, g *Guest) {
			conn, err := g.Accept()
			if err == nil {
				_, _ = conn.Port()
				_, _ = conn.stream.Write([]byte{0xff, 0xff, 0xff, 0xff, 0})
			}
		})
		if _, err := s.Dial(t.Context(), 7); !errors.Is(err, ErrProtocol) {
			t.Errorf("got %v, want %v", err, ErrProtocol)
		}
	})
}

// TestNotOurs checks that the start of a tunnel fails if the other end does not speak its protocol.
func TestNotOurs(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"nothing": "", "text": strings.Repeat("usage: something else\n", 20)} {
		ours, theirs := net.Pipe()
		go func() {
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			_, _ = io.WriteString(theirs, says)
			_ = theirs.Close()
		}()
		if s, err := Open(t.Context(), ours, Options{}); err == nil {
			s.Close()
			t.Errorf("%s: the tunnel opened", name)
		}
	}
	ours, theirs := net.Pipe()
	var failed error
	var work sync.WaitGroup
	work.Go(func() {
		g, err := NewLink(theirs).Join()
		if err == nil {
			g.Fail(errors.New("there is no home"))
			_ = theirs.Close()
		}
		failed = err
	})
	if _, err := Open(t.Context(), ours, Options{}); err == nil || !strings.Contains(err.Error(), "there is no home") {
		t.Errorf("got %v, want why the other end failed", err)
	}
	if work.Wait(); failed != nil {
		t.Error(failed)
	}
}

// TestTold checks that lines of the log arrive, and that a wait ends with ctx.
func TestTold(t *testing.T) {
	t.Parallel()
	told, sent := make(chan string, 1), make(chan error, 1)
	s := tunnel(t, Options{Tell: func(line []byte) { told <- string(line) }}, func(_ *testing.T, g *Guest) {
		sent <- g.Log(json.RawMessage(`{"msg":"here"}`))
	})
	if got := <-told; got != `{"msg":"here"}` {
		t.Errorf("got %q", got)
	}
	if err := <-sent; err != nil { // a line can arrive before the call that sent it returns
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Dial(ctx, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}
