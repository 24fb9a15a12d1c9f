package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/httpwait"
)

// relay is a shell script that connects its standard input and output to a port of the machine on
// which it runs, over IPv4 or IPv6. It prints one byte when it is connected. It needs bash and cat,
// which every template has. It ends when the server closes the connection, or on SIGTERM.
const relay = `{ exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || { exec 3<>"/dev/tcp/::1/$1"; } || exit 7
trap 'kill $(jobs -p) 2>/dev/null' EXIT
trap exit TERM
printf +
cat <&3 &
cat <&0 >&3 &
wait -n
exit 0`

// relayRefused is the relay's exit status if nothing listens on the port.
const relayRefused = 7

// maxRelayError limits the bytes of the relay's error output that are kept.
const maxRelayError = 4 << 10

// Dial opens a connection to a port of a sandbox, remote or local. Use it for protocols other than
// HTTP, such as those of databases or ssh. For HTTP use [Sandbox.Transport]. ctx limits only the
// time to connect. The error is [ErrPortClosed] if nothing listens on the port.
//
// A process in the sandbox relays the bytes. Opening a connection takes as long as starting a
// command, and each message takes as long as a request. The connection supports deadlines. A write
// returns before the server has received the bytes. One direction cannot be closed alone: Close
// ends both directions, and a server that closes its side also ends both. Closing the sandbox's
// handle closes the connection.
func (sb *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	// The connection outlives ctx. Closing the handle cuts it off like a call.
	life, end, err := sb.begin(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	c, err := sb.dial(ctx, life, end, port)
	if err != nil {
		if cause := context.Cause(life); errors.Is(cause, ErrClosed) {
			err = cause
		}
		return nil, sb.failed(ctx, fmt.Sprintf("dial port %d", port), err)
	}
	return c, nil
}

// dial starts a relay and waits until the relay has connected or failed. It calls end when both the
// relay and the connection have ended.
func (sb *Sandbox) dial(ctx, life context.Context, end func(), port int) (*portConn, error) {
	if port < 1 || port > 65535 {
		end()
		return nil, fmt.Errorf("%d is not a port", port)
	}
	near, far := net.Pipe()
	c := &portConn{Conn: near, port: portAddr{sb.ID(), port}}
	t := &tunnel{sb: sb, port: port, conn: c, far: far, connected: make(chan error, 1)}
	t.life, t.close = context.WithCancel(life)
	c.close = sync.OnceValue(func() error { t.close(); return near.Close() })
	go func() {
		defer end()
		t.run()
		if !t.asleep {
			return
		}
		// Ending the relay is no reason to resume the sandbox.
		select {
		case <-sb.asleep.awake():
			if t.relay.checkSameProcess(life) == nil {
				t.endRelay()
			}
		case <-life.Done():
		}
	}()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	var err error
	select {
	case err = <-t.connected:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-life.Done():
		select {
		case err = <-t.connected: // the tunnel also ends with life
		default:
			err = context.Cause(life)
		}
	case <-timeout.C:
		err = httpwait.NewSlowError("no connection was made", startTimeout)
	}
	if err == nil {
		return c, nil
	}
	_ = c.Close()
	return nil, err
}

// tunnel transfers data between a connection and a relay, in both directions.
type tunnel struct {
	sb        *Sandbox
	port      int
	conn      *portConn
	far       net.Conn // the other end of conn
	connected chan error
	relay     *attachment // the relay; set before the first byte is transferred
	opened    bool        // the relay is connected
	asleep    bool        // a pause has cut off the relay
	stderr    []byte
	writing   sync.WaitGroup
	life      context.Context //nolint:containedctx // the context of the connection, which is no call
	close     context.CancelFunc
}

// run starts the relay and forwards its output to the connection, until the relay or the connection
// ends.
func (t *tunnel) run() {
	err := t.carry()
	t.conn.failed.CompareAndSwap(nil, &err)
	select {
	case t.connected <- err:
	default: // it was connected, and returns err to the reader of the connection
	}
	t.close()
	_ = t.far.Close()
	t.writing.Wait()
}

func (t *tunnel) carry() error {
	stdin := true
	shell := ownShell(relay)
	started, err := t.sb.startProcess(t.life, t.life, "", &process.StartRequest{
		Process: &process.ProcessConfig{
			Cmd: shell[0], Args: append(shell[1:], "relay", strconv.Itoa(t.port)),
		},
		Stdin: &stdin,
	})
	if err != nil {
		return broken(err)
	}
	t.relay = started
	defer context.AfterFunc(t.life, func() {
		_ = t.far.Close() // close it first: a pending write may block on it
		started.cancel()
	})()
	end, err := started.follow(t.life, t.receive)
	switch {
	case end == nil:
		started.release()
		if t.life.Err() == nil {
			_, t.asleep = t.sb.pauseSince(t.life, started.begun)
		}
		if !t.asleep {
			t.endRelay()
		}
		switch cause := context.Cause(t.life); {
		case errors.Is(cause, ErrClosed):
			return cause
		case cause != nil:
			return net.ErrClosed
		}
		return t.sb.cause(t.life, broken(err))
	case t.opened && end.GetExitCode() == 0:
		return io.EOF
	case !t.opened && end.GetExitCode() == relayRefused:
		return &portClosedError{port: t.port}
	}
	return fmt.Errorf("the relay in the sandbox failed: %s: %s", end.GetStatus(), clip.LastLine(string(t.stderr), maxLastLine))
}

// brokenError wraps the [ErrCommandLost] of a relay. Its text mentions no command, because the
// caller started no command.
type brokenError struct{ cause error }

func (e *brokenError) Error() string { return "its stream broke: bytes may be missing" }
func (e *brokenError) Unwrap() error { return e.cause }

func broken(err error) error {
	if errors.Is(err, ErrCommandLost) {
		return &brokenError{err}
	}
	return err
}

// receive handles a piece of the relay's output.
func (t *tunnel) receive(event *process.ProcessEvent_DataEvent) error {
	if text := event.GetStderr(); len(t.stderr) < maxRelayError {
		t.stderr = append(t.stderr, text[:min(len(text), maxRelayError)]...)
	}
	data := event.GetStdout()
	if len(data) > 0 && !t.opened {
		t.opened, data = true, data[1:]
		t.connected <- nil
		t.writing.Go(t.write)
	}
	if len(data) == 0 {
		return nil
	}
	_, err := t.far.Write(data)
	return err // this side has closed the connection
}

// write forwards to the relay all bytes that are written to the connection.
func (t *tunnel) write() {
	buffer := make([]byte, inputChunk)
	for {
		n, err := t.far.Read(buffer)
		if err != nil {
			t.close()
			return
		}
		if _, err := t.relay.input(t.life, buffer[:n], stdinInput); err != nil {
			if connect.CodeOf(err) == connect.CodeNotFound {
				return // the relay has ended, and its last event has the reason
			}
			err = translated(err)
			t.conn.failed.CompareAndSwap(nil, &err)
			t.close()
			return
		}
	}
}

// endRelay ends the relay and its child processes, even while the handle is being closed.
func (t *tunnel) endRelay() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.life), closeTimeout/2)
	defer cancel()
	err := t.relay.signal(ctx, process.Signal_SIGNAL_SIGTERM)
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound && !errors.Is(err, ErrGone) && !t.sb.dying.Load() {
		t.sb.client.api.Logger().WarnContext(ctx, "the relay of a connection may still run", "sandbox", t.sb.ID(), "port", t.port, "error", err)
	}
}

// portConn is a connection to a port of a sandbox.
type portConn struct {
	net.Conn // one end of a pipe
	port     portAddr
	close    func() error
	failed   atomic.Pointer[error] // the reason why the other end of the pipe was closed
}

// Read reads from the connection. It returns io.EOF if the server closed the connection, and
// another error if the connection broke.
func (c *portConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.reason("read", err)
}

func (c *portConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.reason("write", err)
}

// reason replaces the pipe's error with the reason why the tunnel ended.
func (c *portConn) reason(op string, err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	why := net.ErrClosed
	if failed := c.failed.Load(); failed != nil {
		why = *failed
	}
	if errors.Is(why, io.EOF) {
		if op == "read" {
			return io.EOF
		}
		why = syscall.EPIPE
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: c.port, Err: why}
}

func (c *portConn) Close() error         { return c.close() }
func (c *portConn) RemoteAddr() net.Addr { return c.port }
func (c *portConn) LocalAddr() net.Addr  { return portAddr{"local", 0} }

// portAddr is a port of a sandbox.
type portAddr struct {
	sandbox string
	port    int
}

func (a portAddr) Network() string { return "tcp" }
func (a portAddr) String() string  { return net.JoinHostPort(a.sandbox, strconv.Itoa(a.port)) }

var _ http.RoundTripper = (*portTransport)(nil)
