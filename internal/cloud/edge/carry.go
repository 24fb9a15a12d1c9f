package edge

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	bufferSize = 32 << 10
	maxHeader  = 1 << 20
)

// carry forwards a request to the sandbox u and the port of its route.
func (rt *Router) carry(w http.ResponseWriter, r *http.Request, u *upstream, to route) {
	port := to.port
	if u.TrafficToken != "" && port != protocol.PortEnvd {
		token := r.Header.Get(protocol.HeaderTraffic)
		if token == "" {
			writeError(w, r, sandboxError{SandboxID: u.ID, Message: messageTrafficMissing, Code: http.StatusForbidden})
			return
		}
		if subtle.ConstantTimeCompare([]byte(token), []byte(u.TrafficToken)) != 1 {
			writeError(w, r, sandboxError{SandboxID: u.ID, Message: messageTrafficInvalid, Code: http.StatusForbidden})
			return
		}
	}
	// Neither is a request to a program: CONNECT asks for a tunnel, and TRACE makes the
	// program repeat the tokens that it received.
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		writeError(w, r, sandboxError{SandboxID: u.ID, Message: messageMethod, Code: http.StatusMethodNotAllowed})
		return
	}
	as := u.classOf(r, port)
	done, ok := u.admit(as)
	if !ok {
		rt.refuse(w, r, u, port, as)
		return
	}
	defer done()
	connlimit.Admit(r.Context())
	spell, refusal := rt.enter(r, u, port)
	if refusal != nil {
		writeError(w, r, *refusal)
		return
	}
	if spell.of != u { // only this request knew u
		u = spell.of
		if done, ok = u.admit(as); !ok {
			rt.refuse(w, r, u, port, as)
			return
		}
		defer done()
	}
	r, unbind := spell.bind(w, r)
	defer unbind()
	// An answer may come before the whole request was read: it may be one side of a
	// conversation, a refusal, or just fast. The server would then close the body that
	// is being forwarded, which cuts the connection to the sandbox. Full duplex, which
	// must be enabled only for HTTP/1, prevents that. For a file upload, an early answer
	// is a refusal: without full duplex, the server delays closing the connection, so
	// that a client that is still writing can read the answer.
	if port != protocol.PortEnvd || r.URL.Path != filesPath {
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	target := &target{upstream: u, spell: spell, port: port, rules: to.rules, class: as, grpc: isGRPC(r)}
	served := make(chan struct{})
	defer close(served)
	defer resetWhenAborted(w, r)
	rt.proxy.ServeHTTP(&upgradable{w, target, served}, r.WithContext(context.WithValue(r.Context(), targetKey{}, target)))
}

// target is the destination of a request.
type target struct {
	*upstream
	spell *spell
	port  int
	rules rules
	class class
	grpc  bool
}

// isGRPC reports whether a request is a gRPC call. gRPC exists only over HTTP/2;
// servers of HTTP/1 understand the rest as well.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// transport returns the connection pool for the request.
func (t *target) transport() *http.Transport {
	if protocol.OwnPort(t.port) {
		return t.spell.own
	}
	if t.grpc {
		return t.spell.user2
	}
	return t.spell.user
}

type targetKey struct{}

func targetOf(ctx context.Context) *target { return ctx.Value(targetKey{}).(*target) }

// rewrite keeps the request as the client sent it, but for the following.
func rewrite(r *httputil.ProxyRequest) {
	to := targetOf(r.In.Context())
	port := strconv.Itoa(to.port)
	r.Out.URL.Scheme = "http"
	if slices.Contains(to.HTTPSPorts, to.port) {
		r.Out.URL.Scheme = "https"
	}
	r.Out.URL.Host = "127.0.0.1:" + port // only the dialer reads it; TLS does not send an address as server name
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.Out.Trailer = r.In.Trailer // filled in when the body has been read
	// An answer with 101 is sent without the rules, and browsers take cookies from it.
	if to.rules == confined || switchesHTTP(r.Out.Header.Values("Upgrade")) {
		for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			r.Out.Header.Del(name)
		}
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	if to.MaskHost != "" && to.port != protocol.PortEnvd {
		r.Out.Host = strings.ReplaceAll(to.MaskHost, "${PORT}", port)
		r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
	}
}

// roundTripper uses the connections to a request's target.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	to := targetOf(r.Context())
	res, err := to.transport().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	unasked := res.StatusCode == http.StatusSwitchingProtocols && r.Header.Get("Upgrade") == ""
	astray := to.rules == confined && redirects(res.StatusCode)
	if unasked || astray || res.StatusCode < 100 {
		_ = res.Body.Close()
		return nil, fmt.Errorf("edge: %w: status %d", errUnasked, res.StatusCode)
	}
	if res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0 && res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &endless{res.Body, to}
	}
	return res, nil
}

// endless is the body of an answer that ends with its connection. The end and the pause
// of the sandbox also end the connection, but must not count as the end of the answer.
type endless struct {
	io.ReadCloser
	from *target
}

func (b *endless) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && (b.from.isGone() || b.from.spell.over.Err() != nil) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// upgradable is the ResponseWriter of a request whose connection may be upgraded. An
// upgraded connection ends when the sandbox ends or pauses. If only the sandbox's half
// ended, the client's half would stay open for as long as the client likes.
type upgradable struct {
	http.ResponseWriter
	to     *target
	served <-chan struct{} // closed when the handler has returned
}

func (w *upgradable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *upgradable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		go func() {
			select {
			case <-w.to.gone.Done():
				_ = conn.Close()
			case <-w.to.spell.over.Done():
				_ = conn.Close()
			case <-w.served:
			}
		}()
	}
	return conn, buffered, err
}

// WriteHeader does not forward the sandbox's 100 Continue: it makes this server read the
// body, and the server then sends its own 100 Continue.
func (w *upgradable) WriteHeader(status int) {
	if status != http.StatusContinue {
		w.ResponseWriter.WriteHeader(status)
	}
}

// errUnasked means that an answer must not reach the client. After a 101 the bytes
// of the client's connection belong to the sandbox. A client that did not ask for an
// upgrade and takes the 101 for one of the 1xx responses to skip goes on using that
// connection, and sends its next request, including its key, into the sandbox.
var errUnasked = errors.New("not an answer to what was asked")

// switchesHTTP reports whether a request offers to switch to another version of HTTP.
// After that, the client would go on using the connection for HTTP, including requests
// to the API: a sandbox must not accept the offer. Other protocols use a connection of
// their own.
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

// fail answers a request that received no answer from its sandbox. For clients 502
// has only one meaning, that the sandbox or the port does not exist; temporary
// failures are 503.
func (rt *Router) fail(w http.ResponseWriter, r *http.Request, err error) {
	to := targetOf(r.Context())
	e := sandboxError{SandboxID: to.ID, Code: http.StatusBadGateway}
	switch {
	case to.spell.over.Err() != nil, r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the sandbox was paused, or the client has gone
	case errors.Is(err, ErrGone), to.isGone():
		e = rt.notFound(to.ID)
	case errors.Is(err, errPaused):
		panic(http.ErrAbortHandler)
	case errors.Is(err, ErrPortClosed):
		e.Message, e.Port = messagePortClosed, &to.port
	case errors.Is(err, ErrWithoutPorts):
		e.Message, e.Port, e.NoPorts = messageNoPorts, &to.port, true
	case errors.Is(err, ErrTooMany):
		rt.tooMany(w, r, to.upstream, to.port, to.class, 0, err)
		return
	case isPlain(err):
		e.Message, e.Port, e.Code = messageNoTLS, &to.port, http.StatusServiceUnavailable
	case to.ends(r.Context()):
		e = rt.notFound(to.ID)
	default:
		e.Message, e.Port, e.Code = messageBroken, &to.port, http.StatusServiceUnavailable
		rt.options.Logger.WarnContext(r.Context(), "no answer from a sandbox", "sandbox", to.ID, "port", to.port, "error", err)
	}
	writeError(w, r, e)
}

// isPlain reports whether err means that a server answered a TLS handshake with
// something other than TLS.
func isPlain(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// buffers is a pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
