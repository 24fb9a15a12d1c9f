package headers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Bounds of the connections of one sandbox.
const (
	headDeadline = 30 * time.Second // for the handshake, and for the head of a request
	idleDeadline = 2 * time.Minute
	maxHead      = 256 << 10 // bytes of a request's head
	maxAnswer    = 1 << 20   // bytes of an answer's head
	maxStreams   = 250       // on one HTTP/2 connection
	maxRequests  = 256       // requests that run at the same time
	maxIdle      = 16        // idle connections to hosts
)

// Options configures a [Door].
type Options struct {
	Authority *Authority
	// Secret returns the value of a secret.
	Secret func(name string) (string, error)
	Roots  *x509.CertPool // trusted roots for the certificates of hosts; nil: the machine's roots
	// Denied is called for each request that the rules for requests refuse.
	Denied func(network.Denial)
}

// Reach connects to a port of a host. It returns an error if the sandbox may not reach the
// host.
type Reach func(ctx context.Context, host string, port uint16) (net.Conn, error)

// Door forwards the requests of one sandbox to hosts with rules for headers or requests. It is safe for
// concurrent use. Set must be called before Serve. The caller must close it.
type Door struct {
	options Options
	current atomic.Pointer[forwarding]
	server  *http.Server
	conns   chan net.Conn
	closed  chan struct{}
	busy    chan struct{} // one token for each running request
	begin   func()
	close   func()

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// forwarding contains the current rules, and the connections that were opened for them.
type forwarding struct {
	rules     *network.Rules
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

// New returns a door. It uses no resources until there is a connection.
func New(o Options) *Door {
	d := &Door{options: o, conns: make(chan net.Conn), closed: make(chan struct{}), busy: make(chan struct{}, maxRequests)}
	d.server = &http.Server{
		Handler:           http.HandlerFunc(d.serve),
		ReadHeaderTimeout: headDeadline,
		IdleTimeout:       idleDeadline,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          silence(),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		TLSConfig: &tls.Config{
			MinVersion:             tls.VersionTLS12,
			NextProtos:             []string{"h2", "http/1.1"},
			SessionTicketsDisabled: true, // every connection must name its host
			GetCertificate:         d.certificate,
		},
	}
	d.begin = sync.OnceFunc(func() {
		d.running.Go(func() { _ = d.server.ServeTLS(listener{d}, "", "") }) // until Close
	})
	d.close = sync.OnceFunc(func() {
		close(d.closed)
		d.mu.Lock()
		d.ended = true
		d.mu.Unlock()
		_ = d.server.Close() // the error is only that of closing connections
		d.running.Wait()
		d.current.Load().transport.CloseIdleConnections()
	})
	return d
}

// silence returns a logger that drops its messages. It is for messages with which a sandbox could
// fill a log.
func silence() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) }

// Set replaces the rules, and the function that connects to hosts. Later requests do not use
// earlier connections.
func (d *Door) Set(rules *network.Rules, reach Reach) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return reach(ctx, host, httpsPort)
		},
		TLSClientConfig:        &tls.Config{RootCAs: d.options.Roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		IdleConnTimeout:        idleDeadline,
		TLSHandshakeTimeout:    headDeadline,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswer,
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: keepTrailers,
		ErrorHandler:   refuse,
		ErrorLog:       silence(),
	}
	if old := d.current.Swap(&forwarding{rules, transport, proxy}); old != nil {
		old.transport.CloseIdleConnections()
	}
}

// Serve takes over a connection from inside the sandbox. It does not wait for the connection to
// end.
func (d *Door) Serve(conn net.Conn) {
	d.begin()
	select {
	case d.conns <- conn:
	case <-d.closed:
		_ = conn.Close()
	}
}

// Close ends all connections except those that were upgraded to another protocol. It returns when
// no goroutine of the door is running. The upgraded connections end when the sandbox closes them.
// Close is idempotent.
func (d *Door) Close() { d.close() }

// listener is the listener from which a door's server accepts connections.
type listener struct{ door *Door }

func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.door.conns:
		return conn, nil
	case <-l.door.closed:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// certificate returns the certificate for the host of a new connection.
func (d *Door) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := canonical(hello.ServerName)
	if !d.current.Load().rules.Opens(host) {
		return nil, fmt.Errorf("headers: no rule for %.255q", host)
	}
	return d.options.Authority.certificate(host)
}

const httpsPort = 443

// canonical returns a host name in lower case, without a final dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// values is the context key of the headers for a request.
type values struct{}

// serve forwards a request with the host's current headers. It refuses a request for a host that is
// not the host of the connection.
func (d *Door) serve(w http.ResponseWriter, r *http.Request) {
	if !d.enter() {
		panic(http.ErrAbortHandler)
	}
	defer d.running.Done()
	select {
	case d.busy <- struct{}{}:
		defer func() { <-d.busy }()
	case <-r.Context().Done():
		return
	}
	host := canonical(r.TLS.ServerName)
	if status, problem := unfit(r, host); problem != "" {
		refuseUnfit(w, status, problem)
		return
	}
	now := d.current.Load()
	if why := now.rules.RefuseRequest(host, r); why != "" {
		d.options.Denied(network.Denial{Host: host, Port: httpsPort, Rule: why})
		http.Error(w, fmt.Sprintf("e2bctl: the request was not sent to %s: %s", host, why), http.StatusForbidden)
		return
	}
	if now.rules.Limited(host) {
		r.Trailer = nil // some servers add trailers to the headers, and these have been checked already
		// After another upgrade, such as to h2c, requests could not be seen.
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			r.Header.Del("Upgrade")
		}
	}
	headers, err := fill(now.rules.Headers(host), d.options.Secret)
	if err != nil {
		http.Error(w, fmt.Sprintf("e2bctl: the request was not sent to %s: %v", host, err), http.StatusBadGateway)
		return
	}
	defer func() {
		if d.current.Load() != now { // Set could not close these connections while they were in use
			now.transport.CloseIdleConnections()
		}
	}()
	now.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), values{}, headers)))
}

// enter counts a request. It returns false if the door is closed.
func (d *Door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.running.Add(1)
	}
	return !d.ended
}

// unfit returns the reason why a request must not be forwarded to a host, and the status of the
// answer.
func unfit(r *http.Request, host string) (status int, problem string) {
	name, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		name, port = r.Host, "443"
	}
	switch {
	case r.Method == http.MethodConnect:
		return http.StatusMethodNotAllowed, "CONNECT is for proxies, and this is " + host
	case !slices.Contains(network.Methods, r.Method):
		return http.StatusMethodNotAllowed, unfitMethod(r, host)
	case r.URL.Host != "" || r.URL.Scheme != "":
		return http.StatusMisdirectedRequest, "an absolute URI is for proxies, and this is " + host
	case canonical(name) != host || port != "443":
		return http.StatusMisdirectedRequest, fmt.Sprintf("the request is for %.255q, and the connection for %s", r.Host, host)
	}
	return 0, ""
}

// rewrite prepares the outgoing request.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "https", canonical(r.In.TLS.ServerName)
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.Out.Trailer = r.In.Trailer // filled in after the body has been read
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if sent, ok := r.In.Header[name]; ok { // keeps the client's own headers
			r.Out.Header[name] = sent
		}
	}
	for name, value := range r.In.Context().Value(values{}).(http.Header) {
		r.Out.Header[name] = value
		delete(r.Out.Trailer, name)
	}
}

// Put adds the headers of a rule to a request to a host. If the request must not be sent, Put
// answers with the reason and returns false.
func Put(w http.ResponseWriter, r *http.Request, host string, rule []network.Header, secret func(name string) (string, error)) bool {
	if len(rule) == 0 {
		return true
	}
	if !slices.Contains(network.Methods, r.Method) {
		refuseUnfit(w, http.StatusMethodNotAllowed, unfitMethod(r, host))
		return false
	}
	headers, err := fill(rule, secret)
	if err != nil {
		http.Error(w, fmt.Sprintf("e2bctl: the request was not sent to %s: %v", host, err), http.StatusBadGateway)
		return false
	}
	for name, value := range headers {
		r.Header[name] = value
		delete(r.Trailer, name)
	}
	return true
}

// fill returns the headers of a rule. It replaces the names of secrets in them by the secrets' values.
func fill(rule []network.Header, secret func(name string) (string, error)) (http.Header, error) {
	headers := make(http.Header)
	for _, h := range rule {
		value, err := h.Value(secret)
		if err == nil && !httpguts.ValidHeaderFieldValue(value) {
			err = fmt.Errorf("the header %s: its value has control characters", h.Name)
		}
		if err != nil {
			return nil, err
		}
		headers.Set(h.Name, value)
	}
	return headers, nil
}

// unfitMethod returns the reason why a request with an unknown method must not be forwarded.
func unfitMethod(r *http.Request, host string) string {
	return fmt.Sprintf(
		"the request was not sent to %s: network.rules has a rule for requests there, and an answer to the method %.32q could repeat its headers: use one of %s",
		host, r.Method, strings.Join(network.Methods, ", "))
}

func refuseUnfit(w http.ResponseWriter, status int, problem string) {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", strings.Join(network.Methods, ", "))
	}
	w.Header().Set("Connection", "close")
	http.Error(w, "e2bctl: "+problem, status)
}

// keepTrailers removes the length of an answer that has trailers. In HTTP/1, an answer with a
// length has no trailers.
func keepTrailers(r *http.Response) error {
	if len(r.Trailer) > 0 && r.Request.Method != http.MethodHead {
		r.Header.Del("Content-Length")
		r.ContentLength = -1
	}
	return nil
}

// refuse answers a request that could not be forwarded.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	status := http.StatusBadGateway
	if _, denied := errors.AsType[*network.DeniedError](err); denied {
		status = http.StatusForbidden
	}
	http.Error(w, fmt.Sprintf("e2bctl: the request was not sent to %s: %.500s", canonical(r.TLS.ServerName), err), status)
}
