package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// URL returns the address of a port for browsers and other programs outside, such as
// https://3000-i1a2.e2b.app. The scheme is that of the sandbox URL, or https if there is no sandbox
// URL. The host is [Sandbox.Host]. This host name can be resolved only if the service's domain can
// be resolved. Go programs should use [Sandbox.Transport], which does not resolve the host name.
func (sb *Sandbox) URL(port int) string { return sb.client.portURL(sb.ID(), sb.domain(), port) }

// URL is like [Sandbox.URL], for the sandbox that info describes. It sends no request, so a
// paused sandbox stays paused.
func (c *Client) URL(info *Info, port int) string {
	return c.portURL(info.ID, cmp.Or(info.Domain, c.api.Domain()), port)
}

// portURL returns the address of a port of the sandbox called id.
func (c *Client) portURL(id, domain string, port int) string {
	scheme := "https"
	if base, err := url.Parse(c.api.SandboxURL()); err == nil && base.Scheme != "" {
		scheme = base.Scheme
	}
	return scheme + "://" + hostOf(id, domain, port)
}

// Transport returns a transport for HTTP requests to a port of a sandbox, remote or local. It adds
// the headers that route and authorize the requests. The URL of a request must be the address of
// the port inside or outside the sandbox: http://localhost:3000/path, or URL(3000)+"/path". Any
// other address is refused, for instance that of a redirect to another host.
//
// The error is [ErrGone] if the sandbox has ended, [ErrPortClosed] if nothing listens on the
// port, and an [*Error] if the connection breaks before an answer. After Close of the handle,
// requests fail with [ErrClosed]. The transport need not be closed.
//
//	client := &http.Client{Transport: sb.Transport(3000)}
//	response, err := client.Get("http://localhost:3000/health")
func (sb *Sandbox) Transport(port int) http.RoundTripper { return &portTransport{sb, port} }

type portTransport struct {
	sb   *Sandbox
	port int
}

func (t *portTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.roundTrip(r)
	if err != nil && r.Body != nil {
		_ = r.Body.Close() // a RoundTripper must close it; a second Close is harmless
	}
	return response, err
}

func (t *portTransport) roundTrip(r *http.Request) (*http.Response, error) {
	sb := t.sb
	address, err := t.address(r.URL)
	if err != nil {
		return nil, err
	}
	ctx, end, err := sb.begin(r.Context())
	if err != nil {
		return nil, err
	}
	end = sync.OnceFunc(end)
	out := r.Clone(ctx)
	out.URL = address
	if r.Host == r.URL.Host {
		out.Host = "" // use the host of the address
	}
	to := portClient{sb, t.port}
	to.callerHeader(out.Header)
	answered := sb.asleep.asking()
	response, err := sb.client.http.Transport.RoundTrip(out)
	if err != nil {
		err = api.NewError(r.Method, clip.Text(r.URL.Path, 256), err)
	}
	response, err = to.answer(response, err)
	if err != nil {
		defer end()
		return nil, sb.failed(ctx, fmt.Sprintf("%s %s on port %d", r.Method, clip.Text(r.URL.Path, 256), t.port), err)
	}
	answered()
	// Closing the handle must not wait for a caller that has stopped reading.
	context.AfterFunc(ctx, end)
	body := &portBody{ReadCloser: response.Body, end: end}
	response.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // an upgraded connection
		response.Body = struct {
			*portBody
			io.Writer
		}{body, w}
	}
	return response, nil
}

// portBody ends its call when the body is closed.
type portBody struct {
	io.ReadCloser
	end func()
}

func (b *portBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// address returns the address to which a request for u is sent. It returns an error if u is not
// an address of the port.
func (t *portTransport) address(u *url.URL) (*url.URL, error) {
	base, err := url.Parse(t.sb.baseURL(t.port))
	if err != nil {
		return nil, err
	}
	if !t.sb.isPort(u, t.port) {
		return nil, fmt.Errorf("sandbox: a transport for port %d of %s does not carry requests to %s: use http://localhost:%d", t.port, t.sb.ID(), clip.Text(u.Host, 256), t.port)
	}
	to := *u
	to.Scheme, to.Host, to.User = base.Scheme, base.Host, nil
	return &to, nil
}

// isPort reports whether u is an address of a port, inside or outside the sandbox.
func (sb *Sandbox) isPort(u *url.URL, port int) bool {
	if u.Port() == strconv.Itoa(port) && (strings.EqualFold(u.Hostname(), "localhost") || isLoopback(u.Hostname())) {
		return true
	}
	base, err := url.Parse(sb.baseURL(port))
	return err == nil && (strings.EqualFold(u.Host, sb.Host(port)) || strings.EqualFold(u.Host, base.Host))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// callerHeader adds the headers that route and authorize a request of the caller. It keeps the
// caller's User-Agent.
func (p portClient) callerHeader(h http.Header) {
	agent, given := h["User-Agent"]
	p.header(h)
	if given {
		h["User-Agent"] = agent
	}
}

// DialWebsocket opens a websocket on a port of the sandbox at path, which may have a query. header
// may be nil. ctx limits only the time to connect. The caller must close the connection. Errors are
// those of [Sandbox.Transport].
//
// If the handshake is refused, the error is [ErrGone], [ErrPortClosed], or
// [websocket.ErrBadHandshake] together with an [*Error] that has the reason from the answer. The
// answer is also returned, as by [websocket.Dialer.DialContext]. The connection has a type of
// package gorilla/websocket, because the standard library has no websockets.
func (sb *Sandbox) DialWebsocket(ctx context.Context, port int, path string, header http.Header) (*websocket.Conn, *http.Response, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	all := header.Clone()
	if all == nil {
		all = http.Header{}
	}
	to := portClient{sb, port}
	to.callerHeader(all)
	answered := sb.asleep.asking()
	conn, response, err := sb.code.dialer.DialContext(ctx, "ws"+strings.TrimPrefix(sb.baseURL(port), "http")+path, all)
	if err != nil {
		path, _, _ = strings.Cut(path, "?") // a query may have a secret
		if response == nil {
			err = api.NewError(http.MethodGet, clip.Text(path, 256), jupyter.OrDeadline(ctx, err))
		} else {
			body, _ := io.ReadAll(response.Body) // at most 1 KiB, which gorilla has read already
			response.Body = io.NopCloser(bytes.NewReader(body))
			err = to.refusal(err, path, response, body)
		}
		return nil, response, sb.failed(ctx, fmt.Sprintf("open a websocket on port %d", port), err)
	}
	answered()
	return conn, response, nil
}

// refusal returns the error of a websocket's handshake that failed with err. response and body are
// the server's answer to the handshake.
func (p portClient) refusal(err error, path string, response *http.Response, body []byte) error {
	if response.StatusCode == http.StatusBadGateway {
		if routed := p.routed(body); routed != nil {
			return routed
		}
	}
	return fmt.Errorf("%w: %w", err, api.ResponseError(http.MethodGet, clip.Text(path, 256), response.StatusCode, response.Header, body))
}
