package edge

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const filesPath = "/files"

// reserved lists envd's paths for the control plane. Requests from outside to these paths are always
// refused, even with valid credentials.
var reserved = []string{"/init", "/upgrade", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw"}

// Options configure a [Router].
type Options struct {
	API    http.Handler // serves requests that name no sandbox
	Domain string       // host of the API besides localhost and IP addresses, without port; may be ""
	Hosts  []string     // further hosts of the API and of the shared address, in lower case and without port
	Logger *slog.Logger // nil: no log
	// Wake resumes a paused sandbox for a request. It returns when requests can be forwarded.
	// Its errors are (by errors.Is) ErrAsleep, ErrBusy, ErrLimit or the error of the request's
	// context. If Wake is nil, the router uses ErrAsleep for every sandbox.
	Wake func(ctx context.Context, id string) error
	// Asleep returns the paused sandboxes that requests can wake and that have not been added
	// yet. With an id, it returns only that sandbox; with "", all of them. Waking such a
	// sandbox adds it. Only ids and tokens need to be set. If Asleep is nil, there are no such
	// sandboxes.
	Asleep func(id string) []Sandbox
	// Ended returns the reason for a sandbox's end, as a text that everybody with the id may read.
	// It returns "" if the reason is unknown. If Ended is nil, all reasons are unknown.
	Ended func(id string) string
}

// Router is the single entry point of the cloud. It decides whether a request is for the API or
// for a port of a sandbox, and forwards it there. It is an [http.Handler]. It is safe for
// concurrent use.
type Router struct {
	options Options
	domain  string
	proxy   *httputil.ReverseProxy
	pauses  []time.Duration

	mu        sync.RWMutex
	sandboxes map[string]*upstream
}

// New returns a router without sandboxes.
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
		Transport:     roundTripper{newStarts()},
		FlushInterval: -1, // flush immediately, so that streams arrive as they are sent
		BufferPool:    &buffers{},
		ErrorHandler:  rt.fail,
		// The log would repeat what clients notice themselves: connections that break during a
		// copy.
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

// Remove makes a sandbox unreachable. It closes the sandbox's connections, which ends requests
// in flight.
func (rt *Router) Remove(id string) {
	rt.mu.Lock()
	u := rt.sandboxes[id]
	delete(rt.sandboxes, id)
	rt.mu.Unlock()
	if u != nil {
		u.close()
	}
}

// Pause ends every request and connection into a sandbox, even in the middle of an answer. When
// it returns, all connections of the sandbox are closed. Until Resume, no request is forwarded,
// and a request with the sandbox's tokens wakes the sandbox. Pause is idempotent.
func (rt *Router) Pause(id string) {
	if u := rt.lookup(id); u != nil {
		u.pause()
	}
}

// Resume makes the router forward requests to a paused sandbox again. It is idempotent.
func (rt *Router) Resume(id string) {
	if u := rt.lookup(id); u != nil {
		u.resume()
	}
}

func (rt *Router) lookup(id string) *upstream {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.sandboxes[id]
}

// known returns a sandbox that was added or is asleep. It returns nil if there is no such
// sandbox.
func (rt *Router) known(id string) *upstream {
	if u := rt.lookup(id); u != nil {
		return u
	}
	for _, sb := range rt.asleep(id) {
		return newSleeper(sb, rt.pauses)
	}
	return nil
}

// notFound returns the answer for a sandbox that does not exist. It includes the reason why the
// sandbox ended.
func (rt *Router) notFound(id string) sandboxError {
	e := sandboxError{SandboxID: id, Message: messageNotFound, Code: http.StatusBadGateway}
	if rt.options.Ended != nil {
		e.Reason = rt.options.Ended(id)
	}
	return e
}

func (rt *Router) asleep(id string) []Sandbox {
	if rt.options.Asleep == nil {
		return nil
	}
	return rt.options.Asleep(id)
}

// ServeHTTP answers a request to the API or to a sandbox.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := find(r, rt.domain, rt.options.Hosts...)
	w = to.rules.enforce(w)
	switch to.kind {
	case forPreflight:
		answerPreflight(w, r)
		return
	case forAPI:
		rt.options.API.ServeHTTP(w, r)
		return
	case refused:
		if to.status == http.StatusMisdirectedRequest {
			writeError(w, r, misdirected{Code: to.status, Message: to.reason})
			return
		}
		http.Error(w, to.reason, to.status)
		return
	}
	if to.port == protocol.PortEnvd && slices.Contains(reserved, path.Clean(r.URL.Path)) {
		writeError(w, r, reservedRoute{Message: messageReserved, Path: r.URL.Path, Code: http.StatusNotFound})
		return
	}
	var u *upstream
	if to.kind == forSigned {
		u = rt.signer(r)
	} else {
		u = rt.known(to.id)
	}
	if u == nil {
		writeError(w, r, rt.notFound(to.id))
		return
	}
	requestlog.Routed(r.Context(), u.ID, to.port)
	rt.carry(w, r, u, to)
}

// signer returns the sandbox whose token signed a request's file URL, which names no sandbox.
func (rt *Router) signer(r *http.Request) *upstream {
	url := signedURL(r.Method, r.URL.Query())
	if url == nil {
		return nil
	}
	signed := func(sb *Sandbox) bool { return sb.AccessToken != "" && url.signedBy(sb.AccessToken) }
	rt.mu.RLock()
	for _, u := range rt.sandboxes {
		if signed(&u.Sandbox) {
			rt.mu.RUnlock()
			return u
		}
	}
	rt.mu.RUnlock()
	for _, sb := range rt.asleep("") {
		if signed(&sb) {
			return newSleeper(sb, rt.pauses)
		}
	}
	return nil
}

var _ http.Handler = (*Router)(nil)
