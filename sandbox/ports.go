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

// URL returns the address of a port for browsers and other programs outside, such
// as https://3000-i1a2.e2b.app: the scheme is that of the sandbox URL, or https
// without one, and the host is [Sandbox.Host]. Whether the name resolves depends
// on the service's domain; Go programs use [Sandbox.Transport], which does not
// resolve it.
func (sb *Sandbox) URL(port int) string { return sb.client.portURL(sb.ID(), sb.domain(), port) }

// URL is [Sandbox.URL] for the sandbox that info, from [Client.Info], describes. It sends nothing,
// so a sandbox that is paused stays so.
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

// Transport returns a transport that carries HTTP requests to a port of the
// sandbox, remote or local, and adds the headers that route and authorize them.
// The URL of a request names the port as it is named inside or outside:
// http://localhost:3000/path, or URL(3000)+"/path"; other addresses, to which a
// redirect may lead, are refused. If the sandbox is gone the error is [ErrGone],
// if nothing listens on the port [ErrPortClosed], and if the connection breaks
// before an answer an [*Error]; after Close of the handle, requests fail with
// [ErrClosed]. It does not need to be closed.
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
		_ = r.Body.Close() // as a RoundTripper must; a second Close does no harm
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
		out.Host = "" // that of the address
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
	// Close of the handle must not wait for a caller that has stopped reading.
	context.AfterFunc(ctx, end)
	body := &portBody{ReadCloser: response.Body, end: end}
	response.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // a connection that was upgraded
		response.Body = struct {
			*portBody
			io.Writer
		}{body, w}
	}
	return response, nil
}

// portBody ends its call when it is closed.
type portBody struct {
	io.ReadCloser
	end func()
}

func (b *portBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// address returns where a request for u goes. It checks that u means the port.
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

// isPort reports whether u names a port, as it is named inside or outside.
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

// callerHeader routes and authorizes a request of the caller's, which may carry a
// User-Agent of its own.
func (p portClient) callerHeader(h http.Header) {
	agent, given := h["User-Agent"]
	p.header(h)
	if given {
		h["User-Agent"] = agent
	}
}

// DialWebsocket opens a websocket on a port of the sandbox at path, which may
// have a query. header may be nil. ctx bounds only the dialling; the caller
// closes the connection. Errors are those of [Sandbox.Transport]. If the handshake is
// refused, the error is [ErrGone], [ErrPortClosed], or [websocket.ErrBadHandshake] with an
// [*Error] that has the reason from the answer. The answer is returned with it, as by
// [websocket.Dialer.DialContext]. The connection is one of gorilla's package, because the
// standard library has none.
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

// refusal returns the error of a websocket's handshake that failed with err, because the
// answer was another one.
func (p portClient) refusal(err error, path string, response *http.Response, body []byte) error {
	if response.StatusCode == http.StatusBadGateway {
		if routed := p.routed(body); routed != nil {
			return routed
		}
	}
	path, _, _ = strings.Cut(path, "?")
	return fmt.Errorf("%w: %w", err, api.ResponseError(http.MethodGet, clip.Text(path, 256), response.StatusCode, response.Header, body))
}
