// Package connlimit bounds the connections of clients. Each connection costs the server a file
// descriptor before the client has sent a key.
//
// A connection is a stranger until a request on it is admitted, that is, until a handler has
// found that the sender may use the service. A stranger is closed after a while, even if it is
// busy: for example if it sends half a request head, a body that does not end, or HTTP/2
// without a request, or if it does not read its answers. When the number of connections reaches
// the limit, the oldest stranger is closed to make room for the next connection. If there is no
// stranger, the connection that has been idle for the longest time is closed. A connection is
// never closed while an admitted request on it is being served, or after such a request
// upgraded it.
package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// warnEvery is the shortest time between two warnings of too many connections.
const warnEvery = time.Minute

// Options configure a [Listener].
type Options struct {
	Max      int           // maximum number of connections at the same time
	Patience time.Duration // maximum time until a request on a new connection is admitted
	Logger   *slog.Logger
	Advice   string // appended to the warning of too many connections; explains how to allow more; may be empty
}

// Listener is a listener for one [http.Server]. The server's ConnContext must be
// [ConnContext], and its handler must be wrapped by [Handler]. It is safe for
// concurrent use.
type Listener struct {
	*net.TCPListener
	*limit
}

// limit counts the connections of all listeners that share it.
type limit struct {
	options Options

	mu        sync.Mutex
	conns     map[*conn]struct{}
	strangers list.List // of *conn, oldest first
	idle      list.List // of *conn that are not strangers; the first has been idle for the longest time
	warned    time.Time
	closed    bool
}

// New returns a listener that accepts from inner. Closing the listener closes inner too.
func New(inner *net.TCPListener, o Options) *Listener {
	return &Listener{inner, &limit{options: o, conns: map[*conn]struct{}{}}}
}

// Beside returns a listener that accepts from inner and shares the limit of l. Closing either
// listener closes the connections of both.
func (l *Listener) Beside(inner *net.TCPListener) *Listener { return &Listener{inner, l.limit} }

// Count returns the number of open connections.
func (l *Listener) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Max returns the largest number of open connections.
func (l *Listener) Max() int { return l.options.Max }

// conn is a connection of a client. Its fields are guarded by the mutex of its
// listener.
type conn struct {
	*net.TCPConn
	listener *limit
	requests int           // number of admitted requests being served
	waits    *list.List    // the list that contains the connection: strangers or idle; nil while the connection is in use
	place    *list.Element // position in waits
	patience *time.Timer
}

// Accept waits for the next connection. It immediately closes a connection for which there is
// no room.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if c := l.add(inner); c != nil {
			return c, nil
		}
		_ = inner.Close()
	}
}

// add makes room for a connection and adds it. It returns nil if there is no room.
func (l *limit) add(inner *net.TCPConn) *conn {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil
		}
		if len(l.conns) < l.options.Max {
			break
		}
		l.mu.Unlock()
		if !l.makeRoom() {
			return nil
		}
	}
	defer l.mu.Unlock()
	c := &conn{TCPConn: inner, listener: l}
	l.conns[c] = struct{}{}
	c.wait(&l.strangers)
	c.patience = time.AfterFunc(l.options.Patience, func() {
		if l.takeStranger(c) {
			_ = inner.Close()
		}
	})
	return c
}

// makeRoom closes a connection that is not in use. It returns false if there is no such
// connection.
func (l *limit) makeRoom() bool {
	l.mu.Lock()
	first := l.strangers.Front()
	if first == nil {
		first = l.idle.Front()
	}
	var c *conn
	if first != nil {
		c = first.Value.(*conn)
		c.forget()
	}
	now := time.Now()
	warn := now.Sub(l.warned) >= warnEvery
	if warn {
		l.warned = now
	}
	open := len(l.conns)
	l.mu.Unlock()
	if warn {
		l.options.Logger.WarnContext(context.Background(), "too many connections of clients: idle ones are closed, the oldest first, and new ones are refused while all are in use"+l.options.Advice, "open", open, "limit", l.options.Max)
	}
	if c == nil {
		return false
	}
	_ = c.TCPConn.Close()
	return true
}

// takeStranger removes a connection from the strangers. It returns false if the connection is
// not a stranger.
func (l *limit) takeStranger(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.waits != &l.strangers {
		return false
	}
	c.forget()
	return true
}

// Close closes the listener and every connection. This includes upgraded connections, which the
// HTTP server does not close.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	var all []*conn
	for c := range l.conns {
		all = append(all, c)
		c.forget()
	}
	l.mu.Unlock()
	err := l.TCPListener.Close()
	for _, c := range all {
		_ = c.TCPConn.Close()
	}
	return err
}

// Close closes the connection.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.forget()
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}

// forget stops counting the connection. The caller holds the mutex.
func (c *conn) forget() {
	delete(c.listener.conns, c)
	c.stopWaiting()
	c.patience.Stop()
}

// wait appends the connection to a list. stopWaiting removes the connection from its list. The
// callers of both methods hold the mutex.
func (c *conn) wait(in *list.List) { c.waits, c.place = in, in.PushBack(c) }

func (c *conn) stopWaiting() {
	if c.waits != nil {
		c.waits.Remove(c.place)
		c.waits, c.place = nil, nil
	}
}

type (
	connKey    struct{}
	requestKey struct{}
)

// ConnContext must be the ConnContext of the [http.Server]. It also recognizes a connection of
// a [Listener] under TLS.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// request is a request that is being served.
type request struct {
	conn     *conn
	admitted bool // guarded by the listener's mutex
}

// Handler wraps the handler of the server, so that next can call [Admit].
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*conn)
		if !ok {
			panic("connlimit: the server does not use ConnContext")
		}
		q := &request{conn: c}
		defer q.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, q)))
	})
}

// Admit records that the sender of ctx's request may use the service. The connection counts as
// in use until the request has been served. Admit may be called more than once. It does nothing
// if the server has no [Listener].
func Admit(ctx context.Context) {
	q, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return
	}
	l := q.conn.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.admitted {
		return
	}
	q.admitted = true
	q.conn.requests++
	q.conn.stopWaiting()
	q.conn.patience.Stop()
}

func (q *request) end() {
	l := q.conn.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if !q.admitted {
		return
	}
	q.conn.requests--
	if _, open := l.conns[q.conn]; open && q.conn.requests == 0 {
		q.conn.wait(&l.idle)
	}
}
