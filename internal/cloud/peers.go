package cloud

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/edge"
	"github.com/e2bctl/e2bctl/internal/cloud/headers"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// lowestRelayed is the lowest port of a cloud for which sandboxes have a relay. Lower ports are for
// the servers that programs in a sandbox start.
const lowestRelayed = 1024

// maxPeerStreams bounds the number of concurrent requests on an HTTP/2 connection from a
// sandbox.
const maxPeerStreams = 100

// peers serves the connections that sandboxes open to the public names of sandboxes.
type peers struct {
	paths  *network.Peers
	server *http.Server
	tls    *tls.Config
	conns  chan net.Conn
	life   context.Context //nolint:containedctx // it ends with close, and is no call's
	close  func()

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// peerConn is a connection that a sandbox dialled to a public name.
type peerConn struct {
	net.Conn
	name    string
	headers []network.Header // added to each request
	first   []byte           // bytes that were already read
}

func (c *peerConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

type peerKey struct{}

// newPeers starts to serve connections. c must already have its router.
func (c *Cloud) newPeers(config *tls.Config) *peers {
	p := &peers{tls: config, conns: make(chan net.Conn)}
	life, end := context.WithCancel(context.Background())
	p.life = life
	port := uint16(c.address.(*net.TCPAddr).Port)
	p.paths = &network.Peers{Port: port, Is: c.router.IsPublicName, Serve: p.serve}
	p.server = &http.Server{
		Handler: c.handlers.counted(c.log.Handler(peerHandler(c.router, port, c.secrets.Value))),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if t, ok := conn.(*tls.Conn); ok {
				conn = t.NetConn()
			}
			return context.WithValue(ctx, peerKey{}, conn)
		},
		ReadHeaderTimeout: headerDeadline,
		IdleTimeout:       idleDeadline,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // otherwise a sandbox could fill the log
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxPeerStreams},
	}
	p.running.Go(func() { _ = p.server.Serve(peerListener{p}) }) // until close
	p.close = sync.OnceFunc(func() {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		end()
		_ = p.server.Close() // the error is only that of closing connections
		p.running.Wait()
	})
	return p
}

func peerHandler(router *edge.Router, port uint16, secret func(name string) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(peerKey{}).(*peerConn)
		if headers.Put(w, r, conn.name, conn.headers, secret) {
			router.ServePeer(w, r, conn.name, port)
		}
	})
}

// serve takes over a connection from a sandbox. It does not wait for the connection to end.
func (p *peers) serve(conn net.Conn, name string, with []network.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		_ = conn.Close()
		return
	}
	p.running.Go(func() { p.dispatch(&peerConn{Conn: conn, name: name, headers: with}) })
}

// dispatch reads the first byte of a connection, which shows whether the connection uses TLS. Then
// dispatch passes the connection to the HTTP server.
func (p *peers) dispatch(conn *peerConn) {
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(headerDeadline)) // never fails
	stop := context.AfterFunc(p.life, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.ReadFull(conn, first); err != nil {
		_ = conn.Close() // the program has ended, or reached the deadline
		return
	}
	conn.first = first
	served := net.Conn(conn)
	if first[0] == localtls.Handshake {
		served = tls.Server(conn, p.tls)
	}
	select {
	case p.conns <- served:
	case <-p.life.Done():
		_ = conn.Close()
	}
}

// peerListener is the listener from which the HTTP server accepts connections.
type peerListener struct{ peers *peers }

func (l peerListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.peers.conns:
		return conn, nil
	case <-l.peers.life.Done():
		return nil, net.ErrClosed
	}
}

func (l peerListener) Close() error   { return nil }
func (l peerListener) Addr() net.Addr { return &net.TCPAddr{} }

// relayPort returns the port of the relay in sandboxes. It returns 0 if sandboxes have no relay.
func (c *Cloud) relayPort() int {
	if port := c.address.(*net.TCPAddr).Port; port >= lowestRelayed {
		return port
	}
	return 0
}
