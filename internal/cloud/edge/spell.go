package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errPaused is the cause of a dial that a pause ended.
var errPaused = errors.New("edge: the sandbox is paused")

// idleTimeout is shorter than the time after which the sandbox's own servers close an idle
// connection.
const idleTimeout = 90 * time.Second

// spell is a period in which requests are forwarded to a sandbox. The end of the spell also
// ends its requests and connections, so that none of them reaches a later spell.
type spell struct {
	of   *upstream
	over context.Context //nolint:containedctx // it ends with the spell, which is no call
	stop context.CancelFunc

	own   *http.Transport // to the sandbox's own servers
	user  *http.Transport // to user servers
	user2 *http.Transport // to user servers that speak only HTTP/2

	mu    sync.Mutex
	conns map[*conn]struct{} // open connections; nil once the spell has ended
}

func (u *upstream) newSpell() *spell {
	s := &spell{of: u, conns: map[*conn]struct{}{}}
	s.over, s.stop = context.WithCancel(context.Background())
	transport := func(idle, buffer int) *http.Transport {
		return &http.Transport{
			DialContext: s.dial,
			// The client has chosen the encoding, and the answer is forwarded unchanged.
			DisableCompression:     true,
			MaxIdleConnsPerHost:    idle,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeader,
			// The server in the sandbox decides whether a client may send the body. If it does
			// not decide within this time, the body is sent.
			ExpectContinueTimeout: time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
			WriteBufferSize:       buffer,
			ReadBufferSize:        buffer,
		}
	}
	s.own = transport(32, bufferSize)
	// Connections to user servers are not reused. If a server closed an idle connection just
	// before the connection is reused, a request that cannot be repeated would fail. Opening a
	// connection takes only microseconds. Their buffers are small, because each request allocates
	// them; a large body is copied without them.
	s.user = transport(-1, userBufferSize)
	s.user2 = transport(-1, userBufferSize)
	s.user2.DisableKeepAlives = true
	s.user2.Protocols = new(http.Protocols)
	s.user2.Protocols.SetHTTP2(true)
	s.user2.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// end ends the requests of the spell and closes its connections.
func (s *spell) end() {
	s.stop()
	s.close()
}

// close closes the connections of the spell, including those that are still being opened.
func (s *spell) close() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
	s.own.CloseIdleConnections()
	s.user.CloseIdleConnections()
	s.user2.CloseIdleConnections()
}

// dial connects to the port in address, which rewrite has set. Like the hosted service, it
// waits up to a second for a server that does not listen yet.
func (s *spell) dial(ctx context.Context, _, address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	if port < 1 || port > math.MaxUint16 {
		return nil, ErrPortClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.over, cancel)()
	for i := 0; ; i++ {
		conn, err := s.of.Dial(ctx, port)
		if err == nil {
			return s.add(conn)
		}
		if i == len(s.of.pauses) || !errors.Is(err, ErrPortClosed) {
			return nil, err
		}
		pause := time.NewTimer(s.of.pauses[i])
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-s.of.gone.Done():
			pause.Stop()
			return nil, ErrGone
		}
	}
}

// add adds a connection to the spell. If the spell has ended, add closes the connection.
func (s *spell) add(inner net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		_ = inner.Close()
		return nil, errPaused
	}
	c := &conn{inner, s}
	s.conns[c] = struct{}{}
	return c, nil
}

// bind returns a request that ends when the spell ends: both its body and its answer are cut off
// then, even if the client neither sends nor reads. The caller calls unbind when the request has
// been served. If the request was cut off, unbind aborts the handler, because the client's
// connection can no longer be used.
func (s *spell) bind(w http.ResponseWriter, r *http.Request) (bound *http.Request, unbind func()) {
	ctx, cancel := context.WithCancel(r.Context())
	cut := make(chan struct{})
	stop := context.AfterFunc(s.over, func() {
		defer close(cut)
		cancel()
		// Servers of net/http support deadlines, except for an upgraded connection, which
		// upgradable closes.
		client, now := http.NewResponseController(w), time.Now()
		_ = client.SetReadDeadline(now)
		_ = client.SetWriteDeadline(now)
	})
	return r.WithContext(ctx), func() {
		cancel()
		if !stop() {
			<-cut
			panic(http.ErrAbortHandler)
		}
	}
}

// conn is a connection to a sandbox.
type conn struct {
	net.Conn
	spell *spell
}

func (c *conn) Close() error {
	c.spell.mu.Lock()
	delete(c.spell.conns, c)
	c.spell.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending half of an upgraded connection.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
