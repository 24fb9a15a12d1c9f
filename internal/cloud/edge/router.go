package edge

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

const (
	filesPath  = "/files"
	bufferSize = 32 << 10
	maxHeader  = 1 << 20

	headerTraffic = "E2b-Traffic-Access-Token"
)

// reserved are the daemon's routes for the control plane. They are never
// reachable from outside, whoever asks.
var reserved = []string{"/init", "/upgrade", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw"}

// Options configure a [Router].
type Options struct {
	API    http.Handler // answers what is for no sandbox
	Domain string       // host that the API answers to besides localhost and IP addresses, without a port; may be ""
	Logger *slog.Logger // nil: no log
}

// Router is the one door of the cloud: it finds out whether a request is for
// the API or for a port of a sandbox, and carries it there. It is an
// http.Handler and safe for concurrent use.
type Router struct {
	options Options
	domain  string
	proxy   *httputil.ReverseProxy
	pauses  []time.Duration

	mu        sync.RWMutex
	sandboxes map[string]*upstream
}

// New makes a router that knows no sandbox.
func New(o Options) *Router {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	rt := &Router{
		options:   o,
		domain:    hostname(o.Domain),
		sandboxes: map[string]*upstream{},
		pauses:    []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond},
	}
	rt.proxy = &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     roundTripper{},
		FlushInterval: -1, // streams stream
		BufferPool:    &buffers{},
		ErrorHandler:  rt.fail,
		// What a broken connection does to a copy is the client's to see.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	return rt
}

// Add makes a sandbox reachable.
func (rt *Router) Add(sb Sandbox) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.sandboxes[sb.ID] = newUpstream(sb, rt.pauses)
}

// Remove makes a sandbox unreachable. Requests in flight end with its
// connections.
func (rt *Router) Remove(id string) {
	rt.mu.Lock()
	u := rt.sandboxes[id]
	delete(rt.sandboxes, id)
	rt.mu.Unlock()
	if u != nil {
		u.close()
	}
}

func (rt *Router) lookup(id string) *upstream {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.sandboxes[id]
}

// ServeHTTP answers for the API and for every sandbox.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := find(r, rt.domain)
	switch to.kind {
	case forAPI:
		rt.options.API.ServeHTTP(w, r)
		return
	case refused:
		if to.status == http.StatusMisdirectedRequest {
			writeError(w, misdirected{Code: to.status, Message: to.reason})
			return
		}
		http.Error(w, to.reason, to.status)
		return
	}
	if to.port == PortDaemon && slices.Contains(reserved, path.Clean(r.URL.Path)) {
		writeError(w, reservedRoute{Message: messageReserved, Path: r.URL.Path, Code: http.StatusNotFound})
		return
	}
	u := rt.lookup(to.id)
	if to.kind == forSigned {
		u = rt.signer(r)
	}
	if u == nil {
		writeError(w, sandboxError{SandboxID: to.id, Message: messageNotFound, Code: http.StatusBadGateway})
		return
	}
	requestlog.Routed(r.Context(), u.ID, to.port)
	rt.carry(w, r, u, to.port)
}

// carry passes a request to a port of a sandbox.
func (rt *Router) carry(w http.ResponseWriter, r *http.Request, u *upstream, port int) {
	if u.TrafficToken != "" && port != PortDaemon {
		token := r.Header.Get(headerTraffic)
		if token == "" {
			writeError(w, sandboxError{SandboxID: u.ID, Message: messageTrafficMissing, Code: http.StatusForbidden})
			return
		}
		if subtle.ConstantTimeCompare([]byte(token), []byte(u.TrafficToken)) != 1 {
			writeError(w, sandboxError{SandboxID: u.ID, Message: messageTrafficInvalid, Code: http.StatusForbidden})
			return
		}
	}
	if r.Method == http.MethodConnect {
		writeError(w, sandboxError{SandboxID: u.ID, Message: messageConnect, Code: http.StatusMethodNotAllowed})
		return
	}
	if u.inFlight.Add(1) > maxRequests {
		u.inFlight.Add(-1)
		writeError(w, sandboxError{SandboxID: u.ID, Message: messageTooMany, ConnectionLimit: maxRequests, Code: http.StatusTooManyRequests})
		return
	}
	defer u.inFlight.Add(-1)
	// An answer may come before the whole request was read: it is one side of a
	// conversation, or a refusal, or just fast. Without this, which only HTTP/1
	// has to switch on, the server would then close the body that is being
	// carried, and that cuts the connection to the sandbox.
	_ = http.NewResponseController(w).EnableFullDuplex()
	target := &target{upstream: u, port: port}
	rt.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, target)))
}

// target is where a request that is being carried goes.
type target struct {
	*upstream
	port int
}

type targetKey struct{}

func targetOf(ctx context.Context) *target { return ctx.Value(targetKey{}).(*target) }

// rewrite leaves a request as the client sent it.
func rewrite(r *httputil.ProxyRequest) {
	to := targetOf(r.In.Context())
	port := strconv.Itoa(to.port)
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = "sandbox:" + port // only the dialer reads it
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	if switchesHTTP(r.Out.Header.Values("Upgrade")) {
		for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			r.Out.Header.Del(name)
		}
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	if to.MaskHost != "" && to.port != PortDaemon {
		r.Out.Host = strings.ReplaceAll(to.MaskHost, "${PORT}", port)
		r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
	}
}

// roundTripper uses the connections of the sandbox a request goes to.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	to := targetOf(r.Context())
	res, err := to.transport(to.port).RoundTrip(r)
	if err != nil {
		return nil, err
	}
	unasked := res.StatusCode == http.StatusSwitchingProtocols && r.Header.Get("Upgrade") == ""
	if unasked || res.StatusCode < 100 {
		_ = res.Body.Close()
		return nil, fmt.Errorf("edge: %w: status %d", errUnasked, res.StatusCode)
	}
	return res, nil
}

// errUnasked is an answer that may not reach the client. After a 101 the bytes
// of the client's connection belong to the sandbox: a client that did not ask
// for it, and takes it for one of the 1xx to skip, goes on to use that
// connection, and sends its next request, key and all, into the sandbox.
var errUnasked = errors.New("not an answer to what was asked")

// switchesHTTP tells whether a request offers to go on in another version of
// HTTP. Other protocols get a connection of their own, but this one a client
// uses again, for the API too: a sandbox must not take the offer.
func switchesHTTP(upgrades []string) bool {
	for _, header := range upgrades {
		for protocol := range strings.SplitSeq(strings.ToLower(header), ",") {
			protocol = strings.TrimSpace(protocol)
			if protocol == "h2c" || protocol == "h2" || strings.HasPrefix(protocol, "http/") {
				return true
			}
		}
	}
	return false
}

// fail answers a request that got no answer from its sandbox. 502 has one
// meaning for clients, that the sandbox or the port is not there; what may
// pass is 503.
func (rt *Router) fail(w http.ResponseWriter, r *http.Request, err error) {
	to := targetOf(r.Context())
	e := sandboxError{SandboxID: to.ID, Code: http.StatusBadGateway}
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // nobody listens
	case errors.Is(err, ErrGone), to.isGone():
		e.Message = messageNotFound
	case errors.Is(err, ErrPortClosed):
		e.Message, e.Port = messagePortClosed, to.port
	default:
		e.Message, e.Port, e.Code = messageBroken, to.port, http.StatusServiceUnavailable
		rt.options.Logger.WarnContext(r.Context(), "no answer from a sandbox", "sandbox", to.ID, "port", to.port, "error", err)
	}
	writeError(w, e)
}

// signer finds the sandbox whose token signed a file URL that names none.
func (rt *Router) signer(r *http.Request) *upstream {
	query := r.URL.Query()
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	for _, u := range rt.sandboxes {
		if u.AccessToken != "" && signedWith(u.AccessToken, r.Method, query) {
			return u
		}
	}
	return nil
}

var _ http.Handler = (*Router)(nil)

// buffers are those that bodies are copied with.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
