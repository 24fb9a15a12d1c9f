//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// echoServer echoes each line, and closes a connection that says "bye".
const echoServer = `
import socket, threading
def answer(c):
    with c:
        while data := c.recv(65536):
            c.sendall(data)
            if data == b"bye\n":
                return
with socket.create_server(("", 7000)) as s:
    while True:
        threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
`

// startEcho starts the echo server on port 7000.
func startEcho(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	_, err := sb.Commands.Start(t.Context(), "exec python3 -c "+sandbox.Quote(echoServer), nil)
	must.Do(t, err)
	must.Do(t, sb.WaitPort(t.Context(), 7000))
}

// forward returns the address of a forwarding of a port.
func forward(t *testing.T, sb *sandbox.Sandbox, port int) (string, *sandbox.Forwarding) {
	t.Helper()
	f, err := sb.Forward(t.Context(), "127.0.0.1:0", port, nil)
	must.Do(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f.Addr().String(), f
}

// asked sends a line over a new connection and returns the connection once the line was
// echoed.
func asked(address, line string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err = io.WriteString(conn, line); err == nil {
		var got string
		if got, err = bufio.NewReader(conn).ReadString('\n'); err == nil && got != line {
			err = fmt.Errorf("got %q, want %q", got, line)
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func TestForward(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	startEcho(t, sb)
	address, f := forward(t, sb, 7000)
	conn, err := asked(address, "hello\n")
	must.Do(t, err)
	defer conn.Close()
	sent := bytes.Repeat([]byte(everyByte()), 4<<10)
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = conn.Write(sent) })
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("1 MiB there and back: %v, equal %v", err, bytes.Equal(got, sent))
	}
	sending.Wait()
	if _, err := io.WriteString(conn, "bye\n"); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || string(rest) != "bye\n" {
		t.Errorf("the server closes: %q, %v, want %q and a clean end", rest, err, "bye\n")
	}

	// There is no listener: the connection does not look as if a server had closed it.
	closed, _ := forward(t, sb, 7001)
	refused, err := net.Dial("tcp", closed)
	must.Do(t, err)
	defer refused.Close()
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a closed port: %v, want a connection that broke", err)
	}

	open, err := asked(address, "open\n")
	must.Do(t, err)
	defer open.Close()
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is open after Close")
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("it listens after Close")
	}
}

// A pause in the middle resets the connection. The listener stays, until the handle is closed.
func TestForwardPause(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	startEcho(t, sb)
	address, _ := forward(t, sb, 7000)
	before, err := asked(address, "before\n")
	must.Do(t, err)
	defer before.Close()
	must.Do(t, sb.Pause(t.Context(), nil))
	if _, err := before.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("paused: %v, want a connection that broke", err)
	}
	if _, err := asked(address, "asleep\n"); err == nil {
		t.Error("paused: a new connection was answered")
	}
	must.Do(t, sb.Resume(t.Context(), nil))
	after, err := asked(address, "after\n")
	if err != nil {
		t.Fatalf("resumed: %v", err)
	}
	defer after.Close()
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if _, err := after.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is open after Close of the handle")
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("it listens after Close of the handle")
	}
	if _, err := sb.Forward(t.Context(), "127.0.0.1:0", 7000, nil); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("after Close of the handle: %v, want sandbox.ErrClosed", err)
	}
}

// floodServer sends and reads without end on port 7002, for a client that says "flood".
const floodServer = `
import socket, threading
def send(c):
    while True:
        c.sendall(bytes(65536))
def answer(c):
    with c:
        if c.recv(6) == b"flood\n":
            threading.Thread(target=send, args=(c,), daemon=True).start()
            while c.recv(65536):
                pass
with socket.create_server(("", 7002)) as s:
    while True:
        threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
`

// flooded returns a connection over which bytes come without end.
func flooded(address string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_, err = io.WriteString(conn, "flood\n")
	}
	return conn, err
}

// forwarders returns the stacks of goroutines that carry forwarded connections.
func forwarders() (found []string) {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, "sandbox.(*Forwarding).serve") || strings.Contains(stack, "sandbox.(*tunnel).") {
			found = append(found, stack)
		}
	}
	return found
}

// transfer calls step without end. It signals after 4 MiB, which is more than fits into
// buffers on the way, and then sends the error with which step ends.
func transfer(step func([]byte) (int, error)) (underWay <-chan struct{}, ended <-chan error) {
	const enough = 4 << 20
	moving, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		buffer := make([]byte, 64<<10)
		for moved := 0; ; {
			n, err := step(buffer)
			if moved < enough && moved+n >= enough {
				close(moving)
			}
			if moved += n; err != nil {
				failed <- err
				return
			}
		}
	}()
	return moving, failed
}

// A pause during a transfer resets connections, so that neither end takes the bytes that
// arrived for the whole. None of them stays, and the listener continues. The test is not
// parallel, so that all goroutines that it counts are its own.
func TestForwardPauseInTransfer(t *testing.T) {
	sb := shared(t).Create(t)
	if _, err := sb.Commands.Start(t.Context(), "exec python3 -c "+sandbox.Quote(floodServer), nil); err != nil {
		t.Fatal(err)
	}
	must.Do(t, sb.WaitPort(t.Context(), 7002))
	address, _ := forward(t, sb, 7002)
	var conns [2]net.Conn
	for i := range conns {
		conn, err := flooded(address)
		must.Do(t, err)
		defer conn.Close()
		conns[i] = conn
	}
	receiving, received := transfer(conns[0].Read)
	receivingToo, receivedToo := transfer(conns[1].Read)
	sending, sent := transfer(conns[1].Write)
	for what, underWay := range map[string]<-chan struct{}{"receiving": receiving, "both: receiving": receivingToo, "both: sending": sending} {
		patience.Receive(t, what, underWay)
	}
	must.Do(t, sb.Pause(t.Context(), nil))
	if err := patience.Receive(t, "receiving ends", received); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("receiving ended with %v, want ECONNRESET", err)
	}
	// The system reports a reset once, to the first of the two calls.
	in, out := patience.Receive(t, "both: receiving ends", receivedToo), patience.Receive(t, "both: sending ends", sent)
	if !errors.Is(in, syscall.ECONNRESET) && !errors.Is(out, syscall.ECONNRESET) {
		t.Errorf("both: receiving ended with %v, sending with %v, want ECONNRESET in one of them", in, out)
	}
	patience.Until(t, "nothing carries a connection while the sandbox is paused", func() bool { return len(forwarders()) == 0 })
	must.Do(t, sb.Resume(t.Context(), nil))
	again, err := flooded(address)
	if err != nil {
		t.Fatalf("resumed: %v", err)
	}
	defer again.Close()
	if _, err := io.ReadFull(again, make([]byte, 1<<20)); err != nil {
		t.Errorf("resumed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	patience.Until(t, "nothing carries a connection that its client closed", func() bool { return len(forwarders()) == 0 })
}

// A client that does not read the endless output of a server does not block Close.
func TestForwardUnread(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	endless := strings.Replace(echoServer, "data := c.recv(65536):", "data := bytes(65536):\n            print(end='.', flush=True, file=open('/tmp/sent', 'a'))", 1)
	if _, err := sb.Commands.Start(t.Context(), "exec python3 -c "+sandbox.Quote(endless), nil); err != nil {
		t.Fatal(err)
	}
	must.Do(t, sb.WaitPort(t.Context(), 7000))
	address, f := forward(t, sb, 7000)
	conn, err := net.Dial("tcp", address)
	must.Do(t, err)
	defer conn.Close()
	must.Do(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	if _, err := io.ReadFull(conn, make([]byte, 4<<10)); err != nil { // through so small a buffer, more takes long
		t.Fatal(err)
	}
	sent := ""
	patience.Until(t, "the server cannot send more", func() bool {
		before := sent
		sent = sandboxtest.Run(t, sb, "wc -c </tmp/sent")
		return sent == before
	})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// One connection over the limit waits until another one ends: its client closes it, or the
// server does in the middle. The others continue.
func TestForwardManyConnections(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	startEcho(t, sb)
	address, _ := forward(t, sb, 7000)
	conns := make([]net.Conn, sandbox.DefaultMaxConnections)
	var opening sync.WaitGroup
	for i := range conns {
		opening.Go(func() {
			var err error
			if conns[i], err = asked(address, fmt.Sprintf("%d\n", i)); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		return
	}
	for who, end := range map[string]func(net.Conn) error{
		"a client closes": net.Conn.Close,
		"the server closes": func(conn net.Conn) error {
			if _, err := io.WriteString(conn, "bye\n"); err != nil {
				return err
			}
			if rest, err := io.ReadAll(conn); err != nil || string(rest) != "bye\n" {
				return fmt.Errorf("got %q, %w, want %q and a clean end", rest, err, "bye\n")
			}
			return conn.Close()
		},
	} {
		type answer struct {
			conn net.Conn
			err  error
		}
		answered := make(chan answer, 1)
		go func() {
			conn, err := asked(address, "one more\n")
			answered <- answer{conn, err}
		}()
		// The relay of a connection that ended before may still be ending.
		patience.Until(t, fmt.Sprintf("the server and a relay for each of %d connections run, and no more", len(conns)), func() bool {
			running, err := sb.Commands.List(t.Context(), nil)
			return err == nil && len(running) <= 1+sandbox.DefaultMaxConnections
		})
		select {
		case got := <-answered:
			t.Fatalf("the one that has to wait: %v, before another one ended", got.err)
		default:
		}
		if err := end(conns[0]); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		got := patience.Receive(t, who+", and the one that waited is answered", answered)
		if got.err != nil {
			t.Fatalf("%s: the one that waited: %v", who, got.err)
		}
		conns = append(conns[1:], got.conn)
	}
	for i, conn := range conns {
		if _, err := fmt.Fprintf(conn, "still %d\n", i); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
		if got, err := bufio.NewReader(conn).ReadString('\n'); err != nil || got != fmt.Sprintf("still %d\n", i) {
			t.Errorf("connection %d: got %q, %v after others ended", i, got, err)
		}
		_ = conn.Close()
	}
}

func TestForwardRefused(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	for _, port := range []int{0, -1, 65536} {
		if _, err := sb.Forward(t.Context(), "127.0.0.1:0", port, nil); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("port %d: %v, want api.ErrInvalidArgument", port, err)
		}
	}
	if _, err := sb.Forward(t.Context(), "127.0.0.1:0", 7000, &sandbox.ForwardParams{MaxConnections: -1}); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("a negative number: %v, want api.ErrInvalidArgument", err)
	}
	if _, err := sb.Forward(t.Context(), "192.0.2.1:1", 7000, nil); err == nil {
		t.Error("an address of another machine: no error")
	}
}
