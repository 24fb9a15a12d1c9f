package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Options configure [Open].
type Options struct {
	Hello Hello
	// Restored means that the daemon was saved while its link stood still, and had another server
	// before.
	Restored bool
	Egress   engine.Egress // nil: no egress
	Tell     func(line []byte)
	// Kills returns the number of the sandbox's processes killed so far for lack of memory. If it
	// is nil the answer is 0.
	Kills func() int

	stuck time.Duration // 0: stuckTimeout
}

// Server is the server's end of the tunnel to one sandbox. It is safe for concurrent use.
type Server struct {
	session *yamux.Session
	lane    *lane
	control *Conn
	tell    func(line []byte)
	kills   func() int
	slots   wire.PortSlots // one for each connection into the sandbox
	asked   chan struct{}  // one for each connection out of it that is being made
	carried chan struct{}  // one for each connection out of it

	mu     sync.Mutex
	egress *passage
	conns  map[*dialled]struct{}
	shut   bool

	reason atomic.Pointer[error]
	work   sync.WaitGroup
	life   context.Context //nolint:containedctx // it ends with the tunnel, not with a call
	end    context.CancelFunc
	close  func()
}

// passage is one setting of a sandbox's egress. Its context ends when the setting is no longer in
// force.
type passage struct {
	egress engine.Egress
	ctx    context.Context //nolint:containedctx // it ends with the passage, not with a call
	end    context.CancelFunc
}

// readyTimeout bounds the wait for the daemon inside.
const readyTimeout = 60 * time.Second

// Open takes over conn, which leads to a daemon that has just started, and returns when the sandbox
// can be used.
func Open(ctx context.Context, conn io.ReadWriteCloser, o Options) (*Server, error) {
	s := &Server{
		lane: newFramed(conn).lane(), tell: o.Tell, kills: o.Kills, conns: map[*dialled]struct{}{},
		slots: wire.NewPortSlots(wire.MaxStreams, wire.MaxStreams), asked: make(chan struct{}, wire.MaxDialling), carried: make(chan struct{}, maxEgress),
	}
	s.life, s.end = context.WithCancel(context.Background())
	var err error
	if s.session, err = guarded(s.lane, cmp.Or(o.stuck, stuckTimeout), s.keepReason, s.cut); err != nil {
		s.end()
		return nil, errors.Join(err, conn.Close())
	}
	s.close = sync.OnceFunc(func() {
		s.end()
		_ = s.session.Close() // fails if the other end has closed it, and ends everything all the same
		s.work.Wait()
	})
	s.SetEgress(o.Egress)
	o.Hello.Version, o.Hello.Egress = Version, o.Egress != nil
	if err := s.begin(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	s.work.Go(s.listen)
	s.work.Go(s.accept)
	return s, nil
}

// begin starts the sandbox.
func (s *Server) begin(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the daemon in it was not ready within %v", readyTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.session.Close() }) // wakes blocked calls
	defer stop()
	began := func() error {
		var err error
		if o.Restored {
			err = s.lane.send(frameServer, nil)
		}
		if err == nil {
			s.control, err = open(s.session)
		}
		if err == nil {
			err = send(s.control, o.Hello)
		}
		var r report
		if err == nil {
			err = receive(s.control, maxReport, &r)
		}
		if broken := s.Err(); err != nil && broken != nil {
			err = broken
		}
		if err != nil {
			return fmt.Errorf("begin a tunnel with it: %w", err)
		}
		switch r.Kind {
		case kindReady:
			return nil
		case kindFailed:
			return errors.New(clip.Text(r.Text, maxText))
		}
		return fmt.Errorf("%w: %.20q", ErrProtocol, r.Kind)
	}
	return wire.CauseOf(ctx, began())
}

// listen handles the daemon's reports until the tunnel ends.
func (s *Server) listen() {
	for {
		var r report
		err := receive(s.control, maxReport, &r)
		switch {
		case err != nil:
		case r.Kind == kindLog:
			if s.tell != nil {
				s.tell(r.Line)
			}
			continue
		case r.Kind == kindFailed:
			err = fmt.Errorf("the daemon in it ended: %s", clip.Text(r.Text, maxText))
		default:
			err = fmt.Errorf("%w: %.20q", ErrProtocol, r.Kind)
		}
		s.fail(err)
		return
	}
}

// fail ends the tunnel.
func (s *Server) fail(err error) {
	s.keepReason(err)
	s.cut()
}

// keepReason keeps the first reason for the end of the tunnel.
func (s *Server) keepReason(err error) { s.reason.CompareAndSwap(nil, &err) }

// cut ends all connections through the tunnel.
func (s *Server) cut() {
	s.end()
	_ = s.session.Close()
}

// Park makes both ends of the tunnel stand still, with nothing on the way between them, until GoOn;
// sends wait. A sandbox saved in this state can go on with another server that sets
// [Options].Restored. After an error the tunnel goes on.
func (s *Server) Park(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the daemon in it did not stand still within %v", readyTimeout))
	defer cancel()
	return s.lane.park(ctx)
}

// GoOn ends what Park began.
func (s *Server) GoOn() error { return s.lane.goOn() }

// Done returns a channel that is closed when the tunnel has ended.
func (s *Server) Done() <-chan struct{} { return s.life.Done() }

// Err returns the reason for the tunnel's end. It returns nil before the end and after Close.
func (s *Server) Err() error {
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// Close ends the tunnel and every connection through it.
func (s *Server) Close() {
	s.reason.CompareAndSwap(nil, new(error))
	s.close()
}

// Dial connects to a port inside. Errors include [engine.ErrPortClosed], [engine.ErrGone],
// [engine.ErrFrozen] and [engine.ErrTooMany].
func (s *Server) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, engine.ErrPortClosed
	}
	if s.life.Err() != nil {
		return nil, engine.ErrGone
	}
	release, ok := s.slots.Take(port)
	if !ok {
		return nil, fmt.Errorf("%w: %d connections are open", engine.ErrTooMany, wire.MaxStreams)
	}
	d := &dialled{server: s, release: release}
	if err := s.enter(d); err != nil {
		release()
		return nil, err
	}
	// While the sandbox is held, opening may wait beyond the end of ctx.
	connected := make(chan error, 1)
	go func() { connected <- d.connect(s.session, uint16(port)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, wire.DialTimeout, fmt.Errorf("the daemon in it did not answer within %v", wire.DialTimeout))
	defer cancel()
	select {
	case err := <-connected:
		if err == nil {
			return d, nil
		}
		d.end()
		switch {
		case errors.Is(err, engine.ErrPortClosed), errors.Is(err, engine.ErrTooMany):
			return nil, err
		case s.life.Err() != nil:
			return nil, engine.ErrGone
		case s.isShut():
			return nil, engine.ErrFrozen
		}
		return nil, err
	case <-s.life.Done():
		d.end()
		return nil, engine.ErrGone
	case <-ctx.Done():
		d.end()
		return nil, context.Cause(ctx)
	}
}

// dialled is a connection that is counted until it is closed.
type dialled struct {
	server  *Server
	release func() // of its slot
	mu      sync.Mutex
	ended   bool
	*Conn
}

func (d *dialled) connect(session *yamux.Session, port uint16) error {
	conn, err := open(session)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.Conn = conn
	ended := d.ended
	d.mu.Unlock()
	if ended {
		return conn.Close()
	}
	if err := send(conn, order{Port: port}); err != nil {
		return err
	}
	var status [1]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return err
	}
	return wire.StatusError(status[0])
}

// end closes the connection, which may not be open yet.
func (d *dialled) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.ended = true
	if d.Conn != nil {
		_ = d.Conn.Close()
	}
	d.server.leave(d)
}

// Close closes the connection.
func (d *dialled) Close() error {
	d.end()
	return nil
}

func (s *Server) enter(d *dialled) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return engine.ErrFrozen
	}
	s.conns[d] = struct{}{}
	return nil
}

func (s *Server) leave(d *dialled) {
	s.mu.Lock()
	delete(s.conns, d)
	s.mu.Unlock()
	d.release()
}

func (s *Server) isShut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shut
}

// Shut cuts every connection, into the sandbox and out of it, and refuses new ones until Reopen.
func (s *Server) Shut() {
	s.mu.Lock()
	s.shut = true
	cut := make([]*dialled, 0, len(s.conns))
	for d := range s.conns {
		cut = append(cut, d)
	}
	s.egress.end()
	s.mu.Unlock()
	for _, d := range cut {
		d.end()
	}
}

// Reopen allows connections again after Shut. Connections that Shut cut stay cut.
func (s *Server) Reopen() {
	s.mu.Lock()
	s.shut = false
	egress := s.egress.egress
	s.mu.Unlock()
	s.SetEgress(egress)
}

// SetEgress changes the egress of the sandbox. It cuts connections through the old one.
func (s *Server) SetEgress(e engine.Egress) {
	ctx, end := context.WithCancel(s.life)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		end()
	}
	if s.egress != nil {
		s.egress.end()
	}
	s.egress = &passage{e, ctx, end}
}

// accept accepts the daemon's connections until the tunnel ends.
func (s *Server) accept() {
	for {
		stream, err := s.session.AcceptStream()
		if err != nil {
			s.fail(err)
			return
		}
		conn := newConn(stream)
		select {
		case s.asked <- struct{}{}:
			s.work.Go(func() { s.carry(conn) })
		default:
			_ = conn.Close()
		}
	}
}

// requestTimeout limits the wait for the destination of a connection, which the daemon sends.
const requestTimeout = 10 * time.Second

// carry connects a connection out of the sandbox and copies until both directions have
// ended.
func (s *Server) carry(inside *Conn) {
	defer func() { _ = inside.Close() }()
	made := sync.OnceFunc(func() { <-s.asked })
	defer made()
	_ = inside.SetDeadline(time.Now().Add(requestTimeout)) // fails only when closed, and then the read fails too
	var r request
	if receive(inside, maxMessage, &r) != nil {
		return
	}
	if r.Kills {
		n := 0
		if s.kills != nil {
			n = s.kills()
		}
		_ = send(inside, answer{Kills: n}) // if it does not arrive only the daemon is harmed
		return
	}
	refuse := func(err error) {
		var denied interface{ Denied() bool }
		// If it does not arrive only the daemon is harmed.
		_ = send(inside, answer{Error: clip.Text(err.Error(), maxText), Denied: errors.As(err, &denied) && denied.Denied()})
	}
	select {
	case s.carried <- struct{}{}:
		defer func() { <-s.carried }()
	default:
		refuse(fmt.Errorf("%w: %d connections are open", engine.ErrTooMany, maxEgress))
		return
	}
	s.mu.Lock()
	p := s.egress
	s.mu.Unlock()
	if p.egress == nil {
		refuse(errInternetOff{})
		return
	}
	if r.Host == "" || len(r.Host) > 255 || r.Port == 0 {
		refuse(errors.New("not an address"))
		return
	}
	_ = inside.SetDeadline(time.Time{})
	stop := context.AfterFunc(p.ctx, func() { _ = inside.Close() })
	defer stop()
	outside, err := p.egress.Dial(p.ctx, r.Host, r.Port)
	if err != nil {
		refuse(err)
		return
	}
	made()
	stopOutside := context.AfterFunc(p.ctx, func() { outside.Close() })
	defer stopOutside()
	if send(inside, answer{}) != nil {
		outside.Close()
		return
	}
	wire.Join(outside, inside)
}

type errInternetOff struct{}

func (errInternetOff) Error() string { return "internet access is off for this sandbox" }

func (errInternetOff) Denied() bool { return true }
