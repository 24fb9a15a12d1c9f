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

// carry passes a request to a port of a sandbox.
func (rt *Router) carry(w http.ResponseWriter, r *http.Request, u *upstream, port int) {
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
	// Neither is a request to a service: one asks for a tunnel, the other makes
	// the service repeat the tokens that it got.
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		writeError(w, r, sandboxError{SandboxID: u.ID, Message: messageMethod, Code: http.StatusMethodNotAllowed})
		return
	}
	if u.inFlight.Add(1) > maxRequests {
		u.inFlight.Add(-1)
		writeError(w, r, sandboxError{SandboxID: u.ID, Message: messageTooMany, ConnectionLimit: maxRequests, Code: http.StatusTooManyRequests})
		return
	}
	defer u.inFlight.Add(-1)
	connlimit.Admit(r.Context())
	// An answer may come before the whole request was read: it is one side of a
	// conversation, or a refusal, or just fast. Without this, which only HTTP/1
	// has to switch on, the server would then close the body that is being
	// carried, and that cuts the connection to the sandbox. Of a file that is being
	// uploaded, an early answer is a refusal: the server then waits a while with the
	// end of the connection, so that who still writes gets to read it.
	if port != protocol.PortEnvd || r.URL.Path != filesPath {
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	target := &target{upstream: u, port: port, grpc: isGRPC(r)}
	served := make(chan struct{})
	defer close(served)
	rt.proxy.ServeHTTP(&upgradable{w, u.gone, served}, r.WithContext(context.WithValue(r.Context(), targetKey{}, target)))
}

// target is where a request that is being carried goes.
type target struct {
	*upstream
	port int
	grpc bool
}

// isGRPC tells a call of gRPC, which exists over HTTP/2 alone, from what is
// understood by servers of HTTP/1 as well.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// transport has the connections for the request.
func (t *target) transport() *http.Transport {
	switch t.port {
	case protocol.PortEnvd, protocol.PortInterpreter, protocol.PortJupyter:
		return t.own
	}
	if t.grpc {
		return t.user2
	}
	return t.user
}

type targetKey struct{}

func targetOf(ctx context.Context) *target { return ctx.Value(targetKey{}).(*target) }

// rewrite leaves a request as the client sent it.
func rewrite(r *httputil.ProxyRequest) {
	to := targetOf(r.In.Context())
	port := strconv.Itoa(to.port)
	r.Out.URL.Scheme = "http"
	if slices.Contains(to.HTTPSPorts, to.port) {
		r.Out.URL.Scheme = "https"
	}
	r.Out.URL.Host = "127.0.0.1:" + port // only the dialer reads it; in TLS an address is no server name
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.Out.Trailer = r.In.Trailer // filled when the body has been read
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
	if to.MaskHost != "" && to.port != protocol.PortEnvd {
		r.Out.Host = strings.ReplaceAll(to.MaskHost, "${PORT}", port)
		r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
	}
}

// roundTripper uses the connections of the sandbox a request goes to.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	to := targetOf(r.Context())
	res, err := to.transport().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	unasked := res.StatusCode == http.StatusSwitchingProtocols && r.Header.Get("Upgrade") == ""
	if unasked || res.StatusCode < 100 {
		_ = res.Body.Close()
		return nil, fmt.Errorf("edge: %w: status %d", errUnasked, res.StatusCode)
	}
	if res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0 && res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &endless{res.Body, to.upstream}
	}
	return res, nil
}

// endless is the body of an answer that ends with its connection. The end of
// the sandbox ends that, too, but not the answer.
type endless struct {
	io.ReadCloser
	from *upstream
}

func (b *endless) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.from.isGone() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// upgradable is the ResponseWriter of a request whose connection may be upgraded.
// The connection ends with the sandbox then. The end of the sandbox's half alone
// would leave the client's half open for as long as the client likes.
type upgradable struct {
	http.ResponseWriter
	gone   <-chan struct{}
	served <-chan struct{} // closed when the handler returns
}

func (w *upgradable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *upgradable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		go func() {
			select {
			case <-w.gone:
				_ = conn.Close()
			case <-w.served:
			}
		}()
	}
	return conn, buffered, err
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
	case errors.Is(err, ErrTooMany):
		e.Message, e.Code = messageTooMany, http.StatusTooManyRequests
	case isPlain(err):
		e.Message, e.Port, e.Code = messageNoTLS, to.port, http.StatusServiceUnavailable
	default:
		e.Message, e.Port, e.Code = messageBroken, to.port, http.StatusServiceUnavailable
		rt.options.Logger.WarnContext(r.Context(), "no answer from a sandbox", "sandbox", to.ID, "port", to.port, "error", err)
	}
	writeError(w, r, e)
}

// isPlain tells that a server answered a TLS handshake with something else.
func isPlain(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// buffers are those that bodies are copied with.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
