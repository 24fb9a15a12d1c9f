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
	bufferSize     = 32 << 10 // of a connection to the sandbox's own servers
	userBufferSize = 4 << 10  // of a connection to a user server
	maxHeader      = 1 << 20

	// copySize is the size of a buffer for copying a body. An event with as much output as a pipe has,
	// 64 KiB, fits in with its envelope, so that it is written at once.
	copySize = 68 << 10
)

// carry forwards a request to the port to.port of the sandbox u.
func (rt *Router) carry(w http.ResponseWriter, r *http.Request, u *upstream, to route) {
	port := to.port
	if message := u.locked(r, port); message != "" {
		writeError(w, r, sandboxError{SandboxID: u.ID, Message: message, Code: http.StatusForbidden})
		return
	}
	// Neither method is a request to a program: CONNECT asks for a tunnel, and TRACE makes the
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
	if spell.of != u { // no other request uses this u
		u = spell.of
		if done, ok = u.admit(as); !ok {
			rt.refuse(w, r, u, port, as)
			return
		}
		defer done()
	}
	r, unbind := spell.bind(w, r)
	defer unbind()
	// A program may answer before it has read the whole request, for example if it refuses it
	// or if both sides stream. The server would then close the body that is being forwarded,
	// which cuts the connection to the sandbox. Full duplex prevents that; it must be enabled
	// only for HTTP/1. File uploads do not need it: an early answer to an upload is a refusal.
	// Without full duplex, the server delays closing the connection, so that a client that is
	// still writing can read the answer.
	if port != protocol.PortEnvd || r.URL.Path != filesPath {
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	r, use := u.noted(r, port)
	if use != nil {
		defer use()
	}
	target := &target{upstream: u, spell: spell, port: port, rules: to.rules, class: as, grpc: isGRPC(r), use: use}
	served := make(chan struct{})
	defer close(served)
	defer resetWhenAborted(w, r)
	rt.proxy.ServeHTTP(&upgradable{w, target, r.Header, served}, r.WithContext(context.WithValue(r.Context(), targetKey{}, target)))
}

// locked returns the message that refuses a request without the token for its port. If the request
// has the token or needs no token, locked returns "".
func (u *upstream) locked(r *http.Request, port int) string {
	if !u.guards(port) {
		return ""
	}
	token := r.Header.Get(protocol.HeaderTraffic)
	switch {
	case sameToken(token, u.TrafficToken):
		return ""
	case u.PublicPorts && (isPreflight(r) || slices.ContainsFunc(accessTokens(r, port), func(token string) bool { return sameToken(token, u.AccessToken) })):
		return ""
	case u.PublicPorts:
		return messageCodeLocked
	case token == "":
		return messageTrafficMissing
	}
	return messageTrafficInvalid
}

// guards reports whether requests to a port need the sandbox's traffic token, or the access token
// that replaces it on some ports.
func (u *upstream) guards(port int) bool {
	return u.TrafficToken != "" && port != protocol.PortEnvd && (!u.PublicPorts || protocol.OwnPort(port))
}

// accessTokens returns the values that a request presents as the sandbox's access token. Jupyter
// clients send the token in the query or in the Authorization header.
func accessTokens(r *http.Request, port int) []string {
	given := []string{r.Header.Get(protocol.HeaderAccess)}
	if port != protocol.PortJupyter {
		return given
	}
	given = append(given, r.URL.Query().Get("token"))
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && (strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "bearer")) {
		given = append(given, strings.TrimSpace(token))
	}
	return given
}

// sameToken compares two tokens in constant time. If want is empty, it returns false.
func sameToken(given, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// target is the destination of a forwarded request.
type target struct {
	*upstream
	spell *spell
	port  int
	rules rules
	class class
	grpc  bool
	use   func() // notes a use of the sandbox; nil: the request is not a use
}

// isGRPC reports whether a request is a gRPC call. gRPC needs HTTP/2; HTTP/1 servers understand
// all other requests.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// transport returns the connection pool for the target.
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

// rewrite prepares the outgoing request. It changes only the details below. It restores the
// client's query and forwarding headers, because ReverseProxy removes all forwarding headers and
// the invalid parameters of the query.
func rewrite(r *httputil.ProxyRequest) {
	to := targetOf(r.In.Context())
	port := strconv.Itoa(to.port)
	r.Out.URL.Scheme = "http"
	if slices.Contains(to.HTTPSPorts, to.port) {
		r.Out.URL.Scheme = "https"
	}
	r.Out.URL.Host = "127.0.0.1:" + port // only the dialer uses this host: TLS does not send an address as server name
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.Out.Trailer = r.In.Trailer // filled in after the body has been read
	// An answer with status 101 is sent without the rules, and browsers accept its cookies.
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

// roundTripper sends each request over the connections to its target.
type roundTripper struct{ starts *starts }

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	to := targetOf(r.Context())
	if isStart(r, to.port) {
		leave, err := t.starts.enter(r.Context(), &to.slow)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
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
	to.noteAnswer(res)
	return res, nil
}

// endless is the body of an answer without a length: the end of the connection is the end of the
// body. A pause or the end of the sandbox also ends the connection. In this case, endless returns an
// error, so that the answer does not seem complete.
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

// upgradable is the ResponseWriter of a request whose connection may be upgraded. It closes an
// upgraded connection when the sandbox ends or pauses. Otherwise only the sandbox's half would
// end, and the client could keep its half open as long as it likes.
type upgradable struct {
	http.ResponseWriter
	to     *target
	asked  http.Header     // headers of the request
	served <-chan struct{} // closed when the handler has returned
}

func (w *upgradable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *upgradable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		raw := conn
		go func() {
			select {
			case <-w.to.gone.Done():
				_ = raw.Close()
			case <-w.to.spell.over.Done():
				_ = raw.Close()
			case <-w.served:
			}
		}()
		conn = w.to.noteConn(conn, w.asked)
	}
	return conn, buffered, err
}

// WriteHeader does not forward a 100 Continue of the sandbox. Instead it makes this server read
// the body, and the server then sends its own 100 Continue.
func (w *upgradable) WriteHeader(status int) {
	if status != http.StatusContinue {
		w.ResponseWriter.WriteHeader(status)
	}
}

// errUnasked means that an answer must not reach the client. After an answer with status 101,
// the bytes of the client's connection go to the sandbox. A client that did not request an upgrade
// may ignore the status 101, like other 1xx answers, and continue to use the connection. It would
// then send its next request, with its key, to the sandbox.
var errUnasked = errors.New("not an answer to the request")

// switchesHTTP reports whether a request offers to switch to another version of HTTP. A sandbox
// must not accept this offer: the client would continue to send HTTP requests on the
// connection, including requests to the API. Clients of other protocols use a separate
// connection.
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

// fail answers a request to which the sandbox sent no answer. For clients, 502 always means
// that the sandbox or the port does not exist. Temporary failures are 503.
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

// isPlain reports whether err means that a server does not speak TLS.
func isPlain(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// buffers is a pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[copySize]byte); ok {
		return p[:]
	}
	return make([]byte, copySize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[copySize]byte)(p)) }
