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

// DefaultMaxConnections limits the connections that [Sandbox.Forward] has open at once,
// unless [ForwardParams] sets another limit.
const DefaultMaxConnections = 64

// acceptPause is the pause of Forward after the system refused it a connection.
const acceptPause = 100 * time.Millisecond

// ForwardParams sets how a port is forwarded.
type ForwardParams struct {
	// MaxConnections limits the connections that are open at once. More wait until one
	// ends, accepted by the system and not answered. Zero means
	// [DefaultMaxConnections]; a negative number is refused.
	MaxConnections int
	// Failed is called with the reason whenever a connection cannot be made or breaks, by
	// several goroutines at once. Nil means that reasons go to the log of [WithLogger].
	Failed func(err error)
}

// Forwarding is a listener of this machine whose connections go to a port of a sandbox:
// see [Sandbox.Forward]. Its methods may be called concurrently.
type Forwarding struct {
	sb       *Sandbox
	port     int
	listener net.Listener
	life     context.Context //nolint:containedctx // that of the listener, which is no call
	end      func()
	failed   func(error) // nil: to the log
	slots    chan struct{}
	running  sync.WaitGroup // the listener and its connections
}

// Forward listens on a TCP address of this machine, such as "127.0.0.1:0", and connects
// whoever connects there with a port of the sandbox, remote or local, for programs that
// know only addresses. [Forwarding.Addr] says which port the system chose for 0. Whoever
// reaches an address other than loopback reaches the sandbox's port. ctx bounds only the
// beginning; p may be nil.
//
// Each connection is one of [Sandbox.Dial], and has its price: opening it takes as long as
// starting a command, a message as long as a request, and a process runs in the sandbox
// while it is open. A client that closes its sending side ends the connection, and does not
// get the rest of the answer. A connection that cannot be made, because nothing listens on
// the port for instance, or that breaks, is reset: see [ForwardParams].Failed.
//
// A pause of the sandbox resets its connections. The listener stays, and new connections
// work once the sandbox runs again. Close of the forwarding or of the sandbox's handle ends
// the listener and its connections.
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
		_ = listener.Close() // accept returns
	})
	go func() {
		defer done()
		f.running.Wait()
	}()
	return f, nil
}

// Addr returns the address on which it listens.
func (f *Forwarding) Addr() net.Addr { return f.listener.Addr() }

// Close ends the listener and its connections, and returns when they have ended. It may be
// called more than once, and its error is nil.
func (f *Forwarding) Close() error {
	f.end()
	f.running.Wait()
	return nil
}

// accept takes connections until the forwarding ends.
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
		f.warn("a connection was not accepted", err) // the system has no more files, for instance
		select {
		case <-time.After(acceptPause):
		case <-f.life.Done():
		}
	}
}

// serve connects one connection with the port until either side ends.
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
		_, _ = io.Copy(far, near) // why it failed, the other direction says
		_ = far.Close()
	})
	if _, err := io.Copy(near, far); err != nil {
		f.reset(near, err)
	}
	_ = near.Close()
	_ = far.Close()
	sending.Wait()
}

// reset makes the other end see that the connection broke, where its end could look as if
// the server had closed it.
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
