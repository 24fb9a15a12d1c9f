package network

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Bounds of a connection whose requests are checked one by one.
const (
	maxUpstreams  = 4       // connections that are kept for later requests
	maxAnswerHead = 1 << 20 // bytes of the head of an answer
	// endedTimeout bounds the wait for an answer after the client has closed its sending half.
	endedTimeout = 30 * time.Second
)

// gate forwards the requests of one plain HTTP connection that is only allowed because of a name.
// It checks the Host of each request, and writes the request anew, so that the server and the gate
// read the same requests. The gate ends with its context.
type gate struct {
	egress *Egress
	ctx    context.Context //nolint:containedctx // it is that of the connection, not of a call
	host   string          // destination of requests without a host name
	ready  atomic.Pointer[upstream]
	shown  *httputil.ReverseProxy // for requests that contain a host name
	others *httputil.ReverseProxy // for requests without a host name
}

// upstream is the connection that was made for the first request.
type upstream struct {
	net.Conn
	name string // host name in the first request; "": it contained none
}

// throughGate returns a connection whose requests the gate checks, beginning with the bytes in
// heard. The first request is sent to outside. Requests without a host name are sent to host.
func (e *Egress) throughGate(ctx context.Context, outside net.Conn, host string, heard *said) net.Conn {
	ctx, near, far := newDuplex(ctx)
	g := &gate{egress: e, ctx: ctx, host: host}
	g.ready.Store(&upstream{outside, normalize(heard.name)})
	context.AfterFunc(ctx, func() {
		if first := g.ready.Swap(nil); first != nil {
			_ = first.Close()
		}
	})
	g.shown, g.others = g.proxy(true), g.proxy(false)
	server := &http.Server{
		Handler:                      g,
		DisableGeneralOptionsHandler: true, // OPTIONS * is also forwarded: the server outside answers it
		ReadHeaderTimeout:            peekTimeout,
		IdleTimeout:                  tunnelIdle,
		MaxHeaderBytes:               maxPeek,
		ErrorLog:                     silence(),
	}
	one := make(oneConn, 1)
	one <- &replayed{far, heard.bytes}
	close(one)
	_ = server.Serve(one) // returns once the connection is being served
	return near
}

// proxy returns a reverse proxy for requests that contain a host name. If shown is false, the reverse
// proxy is for requests without a host name. Its connections end with the gate.
func (g *gate) proxy(shown bool) *httputil.ReverseProxy {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			name, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(g.ctx, cancel)()
			conn, err := g.dial(ctx, name, shown)
			if err != nil {
				return nil, err
			}
			// CloseIdleConnections would not close a connection that is being dialled for a
			// cancelled request.
			return &bound{conn, context.AfterFunc(g.ctx, func() { _ = conn.Close() })}, nil
		},
		DisableCompression:     true,
		MaxIdleConns:           maxUpstreams,
		IdleConnTimeout:        tunnelIdle,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswerHead,
	}
	return &httputil.ReverseProxy{
		Rewrite:       g.rewrite,
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r.URL.Host, err) },
		ErrorLog:      silence(),
	}
}

// dial connects to the host name in a request. For a request without a host name, dial connects to
// the host of the gate. If the connection of the first request has the right destination, dial uses it.
func (g *gate) dial(ctx context.Context, name string, shown bool) (net.Conn, error) {
	if !shown {
		name = ""
	}
	if first := g.ready.Swap(nil); first != nil {
		if first.name == name {
			return first.Conn, nil
		}
		_ = first.Close()
	}
	if shown {
		return g.egress.Reach(ctx, name, portHTTP)
	}
	conn, err := g.egress.dialUnshown(ctx, g.host, portHTTP)
	return conn, g.egress.noted(err, portHTTP)
}

// bound is a connection of a gate. It ends with the gate at the latest.
type bound struct {
	net.Conn
	release func() bool // removes the connection from the gate
}

func (b *bound) Close() error {
	b.release()
	return b.Conn.Close()
}

// CloseWrite closes the sending half of an upgraded connection.
func (b *bound) CloseWrite() error {
	half, ok := b.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// ServeHTTP checks and forwards one request.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.ProtoMajor != 1:
		http.Error(w, "the name that a request is for cannot be seen in this version of HTTP: use HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	case r.Method == http.MethodConnect:
		http.Error(w, "CONNECT is for proxies: connect to the host itself", http.StatusMethodNotAllowed)
		return
	}
	// After another upgrade, such as to h2c, requests could name other hosts.
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		r.Header.Del("Upgrade")
	}
	// The server's answer is passed on unchanged: missing headers are not added.
	w.Header()["Content-Type"], w.Header()["Date"] = nil, nil

	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	// A client that has closed its sending half may still wait for the answer.
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(endedTimeout, cancel) })()
	by := g.shown
	if _, err := hostOf(r); err != nil {
		by = g.others
	}
	by.ServeHTTP(w, r.WithContext(ctx))
}

// rewrite prepares the outgoing request.
func (g *gate) rewrite(r *httputil.ProxyRequest) {
	name, err := hostOf(r.In)
	if err != nil {
		name = g.host
	}
	r.Out.URL.Scheme, r.Out.URL.Host = "http", net.JoinHostPort(normalize(name), strconv.Itoa(portHTTP))
	passOn(r)
}

// oneConn is a listener that accepts the connections from a channel.
type oneConn chan net.Conn

func (c oneConn) Accept() (net.Conn, error) {
	if conn, ok := <-c; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (oneConn) Close() error   { return nil }
func (oneConn) Addr() net.Addr { return &net.TCPAddr{} }
