//go:build linux

package inside

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Listen serves a port of the sandbox in this process. It accepts the connections
// that the server opened to the port and those made to 127.0.0.1 inside. Without
// namespaces it accepts only the former, because the loopback is the host's.
func (g *Guest) Listen(port int) (net.Listener, error) {
	l := &guestListener{
		guest:  g,
		addr:   &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port},
		conns:  make(chan net.Conn),
		handed: make(chan struct{}, backlog),
		closed: make(chan struct{}),
	}
	l.close = sync.OnceValue(l.end)
	if g.inside {
		var err error
		if l.inside, err = net.ListenTCP("tcp", l.addr); err != nil {
			return nil, fmt.Errorf("room: listen: %w", err)
		}
	}
	g.mu.Lock()
	g.listeners[uint16(port)] = l
	g.mu.Unlock()
	if l.inside != nil {
		l.work.Go(l.accept)
	}
	return l, nil
}

// backlog is how many connections may wait to be accepted.
const backlog = 256

// guestListener merges the connections to a port from both sources.
type guestListener struct {
	guest  *Guest
	addr   *net.TCPAddr
	inside *net.TCPListener // nil without a loopback of the sandbox's own
	conns  chan net.Conn
	handed chan struct{} // one for each connection on its way to Accept
	closed chan struct{}
	close  func() error
	work   sync.WaitGroup
}

func (l *guestListener) accept() {
	for {
		conn, err := l.inside.Accept()
		if err == nil {
			l.offer(conn)
			continue
		}
		select {
		case <-l.closed:
			return
		case <-time.After(10 * time.Millisecond): // most likely out of descriptors
		}
	}
}

// hand passes a connection from the server to Accept. It does not block, because
// the messages behind it are for others.
func (l *guestListener) hand(conn *net.UnixConn) {
	select {
	case l.handed <- struct{}{}:
	default:
		_, _ = conn.Write([]byte{wire.StatusClosed})
		_ = conn.Close()
		return
	}
	go func() {
		defer func() { <-l.handed }()
		if _, err := conn.Write([]byte{wire.StatusConnected}); err != nil {
			_ = conn.Close()
			return
		}
		l.offer(conn)
	}()
}

func (l *guestListener) offer(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		_ = conn.Close()
	}
}

func (l *guestListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *guestListener) Addr() net.Addr { return l.addr }

func (l *guestListener) Close() error { return l.close() }

func (l *guestListener) end() error {
	l.guest.mu.Lock()
	delete(l.guest.listeners, uint16(l.addr.Port))
	l.guest.mu.Unlock()
	close(l.closed)
	if l.inside == nil {
		return nil
	}
	err := l.inside.Close()
	l.work.Wait()
	return err
}
