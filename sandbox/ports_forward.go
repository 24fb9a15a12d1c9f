package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// DefaultMaxConnections is the default of [ForwardParams].MaxConnections.
const DefaultMaxConnections = 64

// acceptPause is the pause of Forward after the system failed to accept a connection.
const acceptPause = 100 * time.Millisecond

// ForwardParams sets how to forward a port.
type ForwardParams struct {
	// MaxConnections limits the connections that are open at the same time. The operating system
	// accepts further connections. They wait until an open connection ends. Zero means
	// [DefaultMaxConnections]; a negative number is refused.
	MaxConnections int
	// Failed is called with the error of each connection that cannot be opened or that breaks. Several
	// goroutines may call it at the same time. Nil means that the errors are logged to the logger of
	// [WithLogger].
	Failed func(err error)
}

// Forwarding is a listener of this machine that forwards its connections to a port of a
// sandbox: see [Sandbox.Forward]. Its methods may be called concurrently.
type Forwarding struct {
	sb       *Sandbox
	port     int
	listener net.Listener
	life     context.Context //nolint:containedctx // the context of the listener, which is no call
	end      func()
	failed   func(error) // receives the errors of connections; nil: they go to the log
	slots    chan struct{}
	running  sync.WaitGroup // counts the listener and its connections
}

// Forward listens on a TCP address of this machine, such as "127.0.0.1:0", and forwards its
// connections to a port of a sandbox, remote or local. Use it for programs that need an address. If
// the port in address is 0, [Forwarding.Addr] returns the address with the port that the operating
// system selected. If address is not a loopback address, anyone who can reach it can reach the
// sandbox's port. ctx limits only the call itself; p may be nil.
//
// Forward opens each connection with [Sandbox.Dial]: opening it takes as long as starting a
// command, each message takes as long as a request, and a process runs in the sandbox while the
// connection is open. If a client closes its sending side, the connection ends and the client does
// not receive the rest of the answer. A connection that breaks or cannot be made, for instance
// because nothing listens on the port, is reset: see [ForwardParams].Failed.
//
// A pause of the sandbox resets its connections. The listener stays open, and new connections work
// when the sandbox runs again. Closing the forwarding or the sandbox's handle ends the listener and
// its connections.
func (sb *Sandbox) Forward(ctx context.Context, address string, port int, p *ForwardParams) (*Forwarding, error) {
	p = cmp.Or(p, &ForwardParams{})
	limit := cmp.Or(p.MaxConnections, DefaultMaxConnections)
	what := fmt.Sprintf("forward port %d", port)
	switch {
	case port < 1 || port > 65535:
		return nil, fmt.Errorf("sandbox: %s of %s: %w: it is not a port", what, sb.ID(), api.ErrInvalidArgument)
	case limit < 0:
		return nil, fmt.Errorf("sandbox: %s of %s: %w: ForwardParams.MaxConnections is negative: %d", what, sb.ID(), api.ErrInvalidArgument, limit)
	}
	life, done, err := sb.begin(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(life)
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		cancel()
		done()
		return nil, fmt.Errorf("sandbox: %s of %s: %w", what, sb.ID(), err)
	}
	f := &Forwarding{sb: sb, port: port, listener: listener, life: life, end: cancel, failed: p.Failed, slots: make(chan struct{}, limit)}
	f.running.Go(f.accept)
	f.running.Go(func() {
		<-life.Done()
		stopListening(listener)
		_ = listener.Close() // makes accept return
	})
	go func() {
		defer done()
		f.running.Wait()
	}()
	return f, nil
}

// Addr returns the address of the listener.
func (f *Forwarding) Addr() net.Addr { return f.listener.Addr() }

// Close ends the listener and its connections, and waits until they have ended. It may be
// called more than once and always returns nil.
func (f *Forwarding) Close() error {
	f.end()
	f.running.Wait()
	return nil
}

// accept accepts connections until the forwarding ends.
func (f *Forwarding) accept() {
	for {
		select {
		case f.slots <- struct{}{}:
		case <-f.life.Done():
			return
		}
		near, err := f.listener.Accept()
		if err == nil {
			f.running.Go(func() {
				defer func() { <-f.slots }()
				f.serve(near)
			})
			continue
		}
		<-f.slots
		if f.life.Err() != nil {
			return
		}
		f.warn("a connection was not accepted", err) // for instance because the system has too many open files
		select {
		case <-time.After(acceptPause):
		case <-f.life.Done():
		}
	}
}

// serve forwards one connection until either side ends.
func (f *Forwarding) serve(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := f.sb.Dial(f.life, f.port)
	if err != nil {
		f.reset(near, err)
		return
	}
	stop := context.AfterFunc(f.life, func() {
		f.reset(near, net.ErrClosed)
		_ = near.Close() // its client may have stopped reading
		_ = far.Close()
	})
	defer stop()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(far, near) // the other direction reports the error
		_ = far.Close()
	})
	if _, err := io.Copy(near, far); err != nil {
		f.reset(near, err)
	}
	_ = near.Close()
	_ = far.Close()
	sending.Wait()
}

// reset resets a connection, so that its client does not mistake the failure for a normal end.
func (f *Forwarding) reset(near net.Conn, err error) {
	if tcp, ok := near.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	if f.life.Err() == nil && !errors.Is(err, net.ErrClosed) {
		f.warn("a forwarded connection failed", err)
	}
}

func (f *Forwarding) warn(what string, err error) {
	if f.failed != nil {
		f.failed(fmt.Errorf("sandbox: forward port %d of %s: %s: %w", f.port, f.sb.ID(), what, err))
		return
	}
	f.sb.client.api.Logger().WarnContext(f.life, what, "sandbox", f.sb.ID(), "port", f.port, "error", err)
}
