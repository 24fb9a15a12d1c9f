//go:build linux

package inside

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// Listen serves a port of the sandbox in this process. It accepts two kinds of connections to the
// port: from the server, and from programs inside to 127.0.0.1. Without namespaces, it accepts only
// connections from the server, because 127.0.0.1 is then the host's loopback.
func (g *Guest) Listen(port int) (net.Listener, error) {
	l := &guestListener{
		guest:  g,
		addr:   &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port},
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
	l.close = sync.OnceValue(l.end)
	if g.ownLoopback {
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

// guestListener accepts the connections to a port from inside the sandbox and from the server.
type guestListener struct {
	guest  *Guest
	addr   *net.TCPAddr
	inside *net.TCPListener // listens on the sandbox's own loopback; nil if the sandbox has no loopback of its own
	conns  chan net.Conn
	closed chan struct{}
	close  func() error
	work   sync.WaitGroup
}

func (l *guestListener) accept() {
	for {
		conn, err := l.inside.AcceptTCP()
		if err == nil {
			if release, err := l.guest.slots.local.Take(); err == nil {
				l.offer(&counted{conn, release})
			} else {
				_ = conn.Close()
			}
			continue
		}
		select {
		case <-l.closed:
			return
		case <-time.After(10 * time.Millisecond): // most likely out of descriptors
		}
	}
}

// hand passes a connection from the server to Accept. It does not block, because later messages
// are for other listeners.
func (l *guestListener) hand(conn *net.UnixConn) {
	release, err := l.guest.slots.Take(l.addr.Port)
	if err != nil {
		refuse(conn, link.StatusOf(err))
		return
	}
	c := &counted{conn, release}
	go func() {
		if _, err := conn.Write([]byte{link.StatusConnected}); err != nil {
			_ = c.Close()
			return
		}
		l.offer(c)
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
