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
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// Options configures [Open].
type Options struct {
	Hello Hello
	// Restored means that the daemon was saved while its link was paused, and that the daemon had
	// another server before.
	Restored bool
	Egress   engine.Egress // the egress of the sandbox; nil if the sandbox has no egress
	Tell     func(line []byte)
	// Kills returns the number of the sandbox's processes that were killed so far for lack of memory.
	// If Kills is nil, the server answers 0.
	Kills func() int

	stuck time.Duration // replaces stuckTimeout; 0 means stuckTimeout
}

// Server is the server's end of the tunnel to one sandbox. It is safe for concurrent use.
type Server struct {
	session *yamux.Session
	lane    *lane
	control *Conn
	tell    func(line []byte)
	kills   func() int
	slots   link.PortSlots // count the connections into the sandbox
	asked   link.Dialling  // counts the connections out of the sandbox until they are made
	carried link.Slots     // count the connections out of the sandbox

	entrance link.Entrance
	access   *link.Access

	reason atomic.Pointer[error]
	work   sync.WaitGroup
	life   context.Context //nolint:containedctx // it ends with the tunnel, not with a call
	end    context.CancelFunc
	close  func()
}

// readyTimeout bounds the wait for the daemon inside the sandbox.
const readyTimeout = 60 * time.Second

// Open takes over conn, which leads to a daemon that has just started. It returns when the sandbox
// can be used.
func Open(ctx context.Context, conn io.ReadWriteCloser, o Options) (*Server, error) {
	s := &Server{
		lane: newFramed(conn).lane(), tell: o.Tell, kills: o.Kills,
		slots: link.NewPortSlots(link.MaxStreams, link.MaxStreams), asked: link.NewDialling(), carried: link.NewSlots(maxEgress),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.access = link.NewAccess(s.life, o.Egress)
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
	return link.CauseOf(ctx, began())
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

// Park makes both ends of the tunnel pause until GoOn is called. During the pause, no data is on
// the way between the ends, and sends wait. A sandbox that is saved in this state can continue with
// another server that sets [Options].Restored. If Park returns an error, the tunnel continues.
func (s *Server) Park(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the daemon in it did not stand still within %v", readyTimeout))
	defer cancel()
	return s.lane.park(ctx)
}

// GoOn lets both ends continue after Park.
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

// Dial connects to a port inside the sandbox. Errors include [engine.ErrPortClosed],
// [engine.ErrGone], [engine.ErrFrozen] and [engine.ErrTooMany].
func (s *Server) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, engine.ErrPortClosed
	}
	if s.life.Err() != nil {
		return nil, engine.ErrGone
	}
	release, err := s.slots.Take(port)
	if err != nil {
		return nil, err
	}
	d := &dialled{}
	if err := d.enter(&s.entrance, release); err != nil {
		release()
		return nil, err
	}
	// While the sandbox is held, opening may wait beyond the end of ctx.
	connected := make(chan error, 1)
	go func() { connected <- d.connect(s.session, uint16(port)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, link.DialTimeout, fmt.Errorf("the daemon in it did not answer within %v", link.DialTimeout))
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
		case s.entrance.IsShut():
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
	left  func() // ends the counting of the connection
	mu    sync.Mutex
	ended bool
	*Conn
}

// enter counts the connection until it ends, and then calls release.
func (d *dialled) enter(e *link.Entrance, release func()) error {
	d.mu.Lock() // the entrance may end it at once
	defer d.mu.Unlock()
	leave, err := e.Enter(d.end)
	d.left = func() {
		leave()
		release()
	}
	return err
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
	return link.StatusError(status[0])
}

// end closes the connection. It may be called before the connection is open.
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
	d.left()
}

// Close closes the connection.
func (d *dialled) Close() error {
	d.end()
	return nil
}

// Entrance returns the connections into the sandbox.
func (s *Server) Entrance() *link.Entrance { return &s.entrance }

// Access returns the access of the sandbox to the network.
func (s *Server) Access() *link.Access { return s.access }

// accept accepts the daemon's connections until the tunnel ends.
func (s *Server) accept() {
	for {
		stream, err := s.session.AcceptStream()
		if err != nil {
			s.fail(err)
			return
		}
		conn := newConn(stream)
		made, err := s.asked.Take()
		if err != nil {
			_ = conn.Close()
			continue
		}
		s.work.Go(func() { s.carry(conn, made) })
	}
}

// requestTimeout limits the wait for the request in which the daemon sends the destination of a
// connection.
const requestTimeout = 10 * time.Second

// carry connects a connection out of the sandbox, and copies until both directions have ended. It
// calls made when the connection has been made. If no connection is made, it calls made before it
// returns.
func (s *Server) carry(inside *Conn, made func()) {
	defer func() { _ = inside.Close() }()
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
		// If it does not arrive only the daemon is harmed.
		_ = send(inside, answer{Error: clip.Text(err.Error(), maxText), Denied: link.IsDenied(err)})
	}
	leave, err := s.carried.Take()
	if err != nil {
		refuse(err)
		return
	}
	defer leave()
	if r.Host == "" || len(r.Host) > 255 || r.Port == 0 {
		refuse(errors.New("not an address"))
		return
	}
	_ = inside.SetDeadline(time.Time{})
	grant := s.access.Grant()
	stop := grant.Ends(inside)
	defer stop()
	outside, err := grant.Dial(r.Host, r.Port)
	if err != nil {
		refuse(err)
		return
	}
	made()
	if send(inside, answer{}) != nil {
		outside.Close()
		return
	}
	grant.Join(outside, inside)
}
