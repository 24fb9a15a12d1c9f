package localtls

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
)

// Handshake is the first byte of every TLS connection. No HTTP request begins with it.
const Handshake = 0x16

// Listener accepts the connections of several listeners. It returns a connection that begins with a
// TLS handshake as [*tls.Conn], and any other connection unchanged. A client that sends nothing
// does not block other clients. Its connection is closed after the Patience of the listener that
// accepted the connection. Listener is safe for concurrent use.
type Listener struct {
	inner   []*connlimit.Listener
	config  *tls.Config
	results chan result
	closed  chan struct{}
	running sync.WaitGroup
	close   func() error
}

// result is the result of one call of Accept.
type result struct {
	conn net.Conn
	err  error
}

// Listen returns a listener that accepts from inner, which must not be empty. Close closes the
// listeners in inner and all of their connections.
func Listen(config *tls.Config, inner ...*connlimit.Listener) *Listener {
	l := &Listener{inner: inner, config: config, results: make(chan result), closed: make(chan struct{})}
	l.close = sync.OnceValue(func() (err error) {
		close(l.closed)
		for _, one := range inner {
			err = errors.Join(err, one.Close())
		}
		l.running.Wait()
		return err
	})
	for _, one := range inner {
		l.running.Go(func() { l.accept(one) })
	}
	return l
}

// Addr returns the address of the first listener.
func (l *Listener) Addr() net.Addr { return l.inner[0].Addr() }

// Close closes the listeners and their connections. It is idempotent.
func (l *Listener) Close() error { return l.close() }

// Accept returns the next connection whose first byte has arrived.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case r := <-l.results:
		return r.conn, r.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// accept accepts from one listener, and passes its connections and errors to Accept. After a
// temporary error, the caller of Accept waits before the next call.
func (l *Listener) accept(from *connlimit.Listener) {
	for {
		conn, err := from.Accept()
		switch {
		case err == nil:
			l.running.Go(func() { l.dispatch(conn) })
		case !l.pass(result{err: err}), errors.Is(err, net.ErrClosed):
			return
		}
	}
}

// dispatch reads the first byte of a connection, and passes the connection to Accept. If the
// connection begins with a TLS handshake, dispatch passes it as [*tls.Conn].
func (l *Listener) dispatch(conn net.Conn) {
	first, err := peek(conn)
	if err != nil {
		_ = conn.Close() // the client has gone, or reached the deadline
		return
	}
	if first == Handshake {
		conn = tls.Server(conn, l.config)
	}
	if !l.pass(result{conn: conn}) {
		_ = conn.Close()
	}
}

// pass passes a result to Accept. It returns false if the listener is closed.
func (l *Listener) pass(r result) bool {
	select {
	case l.results <- r:
		return true
	case <-l.closed:
		return false
	}
}
