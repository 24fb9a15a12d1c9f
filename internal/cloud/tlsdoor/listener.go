package tlsdoor

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
)

// Handshake is the first byte of every TLS connection, and of no HTTP request.
const Handshake = 0x16

// Listener accepts connections of several listeners: plain ones unchanged, and those
// that begin with a TLS handshake as [*tls.Conn]. A client that sends nothing does not
// block others, and is closed when the patience of its listener ends. It is safe for
// concurrent use.
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

// Listen accepts from at least one listener. Close closes the listeners and all of
// their connections.
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

// accept serves one listener. Its errors are those of Accept, whose caller waits before
// it tries again where that helps.
func (l *Listener) accept(from *connlimit.Listener) {
	for {
		conn, err := from.Accept()
		switch {
		case err == nil:
			l.running.Go(func() { l.sort(conn) })
		case !l.pass(result{err: err}), errors.Is(err, net.ErrClosed):
			return
		}
	}
}

// sort waits for the first byte of a connection and passes it on.
func (l *Listener) sort(conn net.Conn) {
	first, err := peek(conn)
	if err != nil {
		_ = conn.Close() // the client is gone, or its time is over
		return
	}
	if first == Handshake {
		conn = tls.Server(conn, l.config)
	}
	if !l.pass(result{conn: conn}) {
		_ = conn.Close()
	}
}

// pass passes a result to Accept, and reports whether that succeeded.
func (l *Listener) pass(r result) bool {
	select {
	case l.results <- r:
		return true
	case <-l.closed:
		return false
	}
}
