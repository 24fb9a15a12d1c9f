package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// maxTunnels bounds the concurrent tunnels through one proxy.
	maxTunnels = 256
	tunnelIdle = 90 * time.Second
)

// Proxy is an HTTP proxy. It supports CONNECT for any protocol, and plain HTTP by absolute URI. It
// runs inside a sandbox that has no other egress path. If a connection is denied, the proxy answers
// 403 and names the host. If a connection fails, the proxy answers 502. The caller must close the
// Proxy.
type Proxy struct {
	dial    func(ctx context.Context, host string, port uint16) (net.Conn, error)
	forward httputil.ReverseProxy
	idle    *http.Transport
	tunnels atomic.Int64
}

// NewProxy returns a proxy that connects with dial. If the error of dial has a method Denied()
// bool that returns true, as *[DeniedError] has, the proxy answers 403.
func NewProxy(dial func(ctx context.Context, host string, port uint16) (net.Conn, error)) *Proxy {
	p := &Proxy{dial: dial}
	p.idle = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := split(address)
			if err != nil {
				return nil, err
			}
			return dial(ctx, host, port)
		},
		DisableCompression: true,
		MaxIdleConns:       32,
		IdleConnTimeout:    tunnelIdle,
	}
	p.forward = httputil.ReverseProxy{
		Rewrite:       passOn,
		Transport:     p.idle,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r.Host, err) },
		ErrorLog:      silence(),
	}
	return p
}

// silence returns a logger that drops its messages. It is for messages with which a sandbox could
// fill a log.
func silence() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) }

// passOn keeps the headers and the trailer of the client's request in the forwarded request.
func passOn(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.Out.Trailer = r.In.Trailer // filled in after the body has been read
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if sent, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = sent
		}
	}
}

// Close closes the connections that are kept for reuse. Tunnels end with their clients.
func (p *Proxy) Close() error {
	p.idle.CloseIdleConnections()
	return nil
}

// ServeHTTP answers one proxy request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.tunnels.Add(1) > maxTunnels {
		p.tunnels.Add(-1)
		http.Error(w, fmt.Sprintf("too many connections through the proxy, the limit is %d", maxTunnels), http.StatusServiceUnavailable)
		return
	}
	defer p.tunnels.Add(-1)
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		p.forward.ServeHTTP(w, r)
	default:
		http.Error(w, "this is an HTTP proxy: ask for an absolute http URI or CONNECT", http.StatusBadRequest)
	}
}

func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	host, port, err := split(r.Host)
	if err != nil {
		http.Error(w, "CONNECT needs host:port", http.StatusBadRequest)
		return
	}
	far, err := p.dial(r.Context(), host, port)
	if err != nil {
		refuse(w, r.Host, err)
		return
	}
	defer far.Close()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "CONNECT needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	defer near.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The client may have sent data before the answer. The buffer contains this data.
		pipe(far, buffered.Reader)
	}()
	pipe(near, far)
	<-done
}

// pipe copies until from ends, and then closes the sending half of to. If the copy fails, pipe
// closes both halves of to, because later data would be incomplete.
func pipe(to net.Conn, from io.Reader) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = to.Close()
	}
}

// refuse answers a request whose connection could not be made. The body contains the reason. Tools
// like pip and curl display this reason, or at least the status.
func refuse(w http.ResponseWriter, host string, err error) {
	status := http.StatusBadGateway
	var denial interface{ Denied() bool }
	if errors.As(err, &denial) && denial.Denied() {
		status = http.StatusForbidden
	}
	http.Error(w, fmt.Sprintf("no connection to %.255s: %.500s", host, err.Error()), status)
}

// split splits an address into host and port.
func split(address string) (string, uint16, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", 0, fmt.Errorf("network: %.255q is not host:port", address)
	}
	return host, uint16(port), nil
}
