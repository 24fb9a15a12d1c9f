package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// The tests of this file run before the parallel ones: a mistake that they find at once would make some of
// those wait.

// TestBoundsOfForwarding checks the bounds of the connections to a sandbox, and that answers are passed on
// as they are, and at once.
func TestBoundsOfForwarding(t *testing.T) {
	u := newUpstream(Sandbox{ID: id}, nil)
	defer u.close()
	s := u.spell()
	for name, tt := range map[string]struct {
		of           *http.Transport
		idle, buffer int
		alone        bool // no connection is used again
	}{"own": {s.own, 32, 32 << 10, false}, "user": {s.user, -1, 4 << 10, false}, "gRPC": {s.user2, -1, 4 << 10, true}} {
		if tt.of.MaxIdleConnsPerHost != tt.idle || tt.of.WriteBufferSize != tt.buffer || tt.of.ReadBufferSize != tt.buffer || tt.of.DisableKeepAlives != tt.alone {
			t.Errorf("%s: got %d idle connections, buffers of %d and %d bytes, none used again: %v", name, tt.of.MaxIdleConnsPerHost, tt.of.WriteBufferSize, tt.of.ReadBufferSize, tt.of.DisableKeepAlives)
		}
		if !tt.of.DisableCompression || tt.of.IdleConnTimeout != 90*time.Second || tt.of.MaxResponseHeaderBytes != 1<<20 || tt.of.ExpectContinueTimeout != time.Second {
			t.Errorf("%s: got compression %v, %v for an idle connection, %d bytes of a head, and %v for 100 Continue", name, !tt.of.DisableCompression, tt.of.IdleConnTimeout, tt.of.MaxResponseHeaderBytes, tt.of.ExpectContinueTimeout)
		}
	}
	if !s.user2.Protocols.HTTP2() || !s.user2.Protocols.UnencryptedHTTP2() || s.user2.Protocols.HTTP1() {
		t.Errorf("gRPC has the protocols %v", s.user2.Protocols)
	}
	proxy := New(Options{}).proxy
	if _, pooled := proxy.BufferPool.(*buffers); proxy.FlushInterval != -1 || !pooled || proxy.ErrorLog == nil || proxy.ErrorLog.Writer() == os.Stderr {
		t.Errorf("got flushes after %v, pooled buffers %v, and the log %v", proxy.FlushInterval, pooled, proxy.ErrorLog)
	}
}

// TestRewrite checks each part of the request that a sandbox receives.
func TestRewrite(t *testing.T) {
	const forwarded = "X-Forwarded-Host"
	for name, tt := range map[string]struct {
		port  int
		rules rules
		mask  string
		sent  http.Header
		url   string
		host  string
		want  http.Header
	}{
		"envd":       {protocol.PortEnvd, unchanged, "masked:${PORT}", http.Header{forwarded: {"mine"}}, "http://127.0.0.1:49983/a%2Fb?c=d;e", "name.test", http.Header{forwarded: {"mine"}}},
		"a program":  {3000, unchanged, "masked:${PORT}", http.Header{forwarded: {"mine"}}, "http://127.0.0.1:3000/a%2Fb?c=d;e", "masked:3000", http.Header{forwarded: {"name.test"}}},
		"with TLS":   {8443, varied, "", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}, "https://127.0.0.1:8443/a%2Fb?c=d;e", "name.test", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}},
		"confined":   {3000, confined, "", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "X": {"y"}}, "http://127.0.0.1:3000/a%2Fb?c=d;e", "name.test", http.Header{"X": {"y"}}},
		"HTTP/2":     {3000, unchanged, "", http.Header{"Upgrade": {"h2c"}, "Connection": {"Upgrade"}, "Http2-Settings": {"x"}}, "http://127.0.0.1:3000/a%2Fb?c=d;e", "name.test", http.Header{}},
		"forwarding": {3000, unchanged, "", http.Header{"Forwarded": {"a"}, "X-Forwarded-For": {"b"}, "X-Forwarded-Proto": {"c"}}, "http://127.0.0.1:3000/a%2Fb?c=d;e", "name.test", http.Header{"Forwarded": {"a"}, "X-Forwarded-For": {"b"}, "X-Forwarded-Proto": {"c"}}},
	} {
		u := newSleeper(Sandbox{ID: id, MaskHost: tt.mask, HTTPSPorts: []int{8443}}, nil)
		in := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a%2Fb?c=d;e", nil)
		in.Host, in.Header, in.Trailer = "name.test", tt.sent, http.Header{"X-End": nil}
		in = in.WithContext(context.WithValue(in.Context(), targetKey{}, &target{upstream: u, port: tt.port, rules: tt.rules}))
		out := in.Clone(in.Context())
		out.Trailer, out.Host, out.URL.RawQuery = nil, "", ""
		for _, name := range []string{"Forwarded", "X-Forwarded-For", forwarded, "X-Forwarded-Proto"} {
			out.Header.Del(name) // as ReverseProxy does
		}
		rewrite(&httputil.ProxyRequest{In: in, Out: out})
		if out.URL.String() != tt.url || out.Host != tt.host {
			t.Errorf("%s: got %s of %s, want %s of %s", name, out.URL, out.Host, tt.url, tt.host)
		}
		if diff := cmp.Diff(tt.want, out.Header); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if _, kept := out.Trailer["X-End"]; !kept {
			t.Errorf("%s: the trailer is lost", name)
		}
		u.close()
	}
}

// ends is a connection that may have halves.
type ends struct {
	net.Conn
	closed string
}

func (e *ends) CloseWrite() error { e.closed += "half"; return io.ErrClosedPipe }

// TestHalves checks that the connections of an upgrade close their sending half, if they have one.
func TestHalves(t *testing.T) {
	type halved interface{ CloseWrite() error }
	for name, wrap := range map[string]func(net.Conn) halved{
		"inside": func(c net.Conn) halved { return &conn{c, nil} }, "noted": func(c net.Conn) halved { return &notedConn{Conn: c} },
	} {
		whole := &ends{}
		if err := wrap(whole).CloseWrite(); whole.closed != "half" || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: closed %q, with error %v", name, whole.closed, err)
		}
		if err := wrap(struct{ net.Conn }{whole}).CloseWrite(); whole.closed != "half" || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s, without halves: closed %q, with error %v", name, whole.closed, err)
		}
	}
}

// TestPagesOfErrors checks that each field of an error reaches its page.
func TestPagesOfErrors(t *testing.T) {
	port := 3000
	for _, tt := range []struct{ got, want page }{
		{sandboxError{id, "m", "r", &port, true, 7, 429}.page(), page{Status: 429, Message: "m", Reason: "r", Sandbox: id, Port: &port, Limit: 7}},
		{reservedRoute{"m", "/p", 404}.page(), page{Status: 404, Message: "m", Path: "/p"}},
		{misdirected{421, "m"}.page(), page{Status: 421, Message: "m"}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if hint := (page{Message: messageNotFound, Reason: "it was killed"}).Hint(); hint != "It ended: it was killed. A sandbox that is created anew has a new id." {
		t.Errorf("got the hint %q, want why it ended", hint)
	}
}

// TestKeepalivePieces checks the bounds of a keepalive message.
func TestKeepalivePieces(t *testing.T) {
	text := "\x00" + `{"keepalive":{}}`
	for piece, want := range map[string]bool{
		"": false, text: true, text[1:]: false, "\x00{}": false, processKeepalive: true, otherKeepalive: true,
		text + strings.Repeat(" ", maxKeepalive-len(text)): true, text + strings.Repeat(" ", maxKeepalive-len(text)+1): false,
	} {
		if got := isKeepalive([]byte(piece)); got != want {
			t.Errorf("%q: got %v, want %v", piece, got, want)
		}
	}
}

// TestNoUse checks what is not a use of a sandbox: a preflight, and nothing that was read or written.
func TestNoUse(t *testing.T) {
	uses := 0
	u := newSleeper(Sandbox{ID: id, Use: func() { uses++ }}, nil)
	defer u.close()
	preflight := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "/", nil)
	preflight.Header.Set("Access-Control-Request-Method", http.MethodGet)
	if r, use := u.noted(preflight, 3000); r != preflight || use != nil || uses != 0 {
		t.Errorf("a preflight: got %d uses", uses)
	}
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Body = body
		if noted, use := u.noted(r, 3000); noted != r || use == nil {
			t.Errorf("a request without a body: got another one, or no use")
		}
	}
	uses = 0
	near, far := net.Pipe()
	_ = far.Close()
	c := &notedConn{Conn: near, use: func() { uses++ }}
	_, _ = c.Read(make([]byte, 1))
	_, _ = c.Write(nil)
	_, _ = (&notedBody{io.NopCloser(strings.NewReader("")), c.use}).Read(make([]byte, 1))
	if uses != 0 {
		t.Errorf("got %d uses without a byte, want none", uses)
	}
	if _, _ = c.Write([]byte("x")); uses != 1 {
		t.Errorf("got %d uses with a byte, want one", uses)
	}
	_ = near.Close()
}

// TestBeginAndEndAreUses checks that a request is a use when it begins and when it ends.
func TestBeginAndEndAreUses(t *testing.T) {
	uses := 0
	rt := New(Options{})
	rt.Add(Sandbox{ID: id, Use: func() { uses++ }, Dial: func(context.Context, int) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(far))
			_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			_ = far.Close()
		}()
		return near, nil
	}})
	defer rt.Remove(id)
	if w := request(t, rt, http.MethodGet, "/", by(id, "3000")); w.Code != http.StatusNoContent || uses != 2 {
		t.Errorf("got %d and %d uses, want 204 and 2", w.Code, uses)
	}
}

// TestFoundRoutes checks the rules of each kind of request to the shared address, and hosts at the edges
// of those that are served.
func TestFoundRoutes(t *testing.T) {
	const signature = "/files?signature=x"
	worker, page := map[string]string{"Service-Worker": "script"}, map[string]string{"Origin": "null", protocol.HeaderSandboxID: id, protocol.HeaderSandboxPort: "1"}
	preflight := map[string]string{"Access-Control-Request-Method": "GET"}
	for _, tt := range []struct {
		method, host, path string
		header             map[string]string
		domain             string
		want               route
	}{
		{"GET", "localhost", "/files", worker, "", route{kind: forAPI}},
		{"GET", "localhost", "/other?signature=x", worker, "", route{kind: forAPI}},
		{"OPTIONS", "localhost", "/files", preflight, "", route{kind: forAPI}},
		{"GET", "localhost", signature, worker, "", route{kind: refused, status: 403, reason: messageWorker, rules: confined}},
		{"OPTIONS", "localhost", signature, preflight, "", route{kind: forPreflight, rules: confined}},
		{"GET", "localhost", signature, nil, "", route{kind: forSigned, port: protocol.PortEnvd, rules: confined}},
		{"GET", "localhost", signature, page, "", route{kind: refused, status: 400, reason: messageTwice, rules: confined}},
		{"GET", "localhost", "/", page, "", route{kind: forSandbox, id: id, port: 1, rules: varied}},
		{"GET", "more.test", "/", nil, "", route{kind: forAPI}},
		{"GET", "single", "/", nil, "", route{kind: refused, status: 421, reason: messageHost}},
		{"GET", "", "/", nil, "", route{kind: refused, status: 421, reason: messageHost}},
		{"GET", "sandbox.", "/", page, "", route{kind: refused, status: 421, reason: messageHost}},
		{"GET", "a.cloud.test", "/", nil, "cloud.test", route{kind: refused, status: 400, reason: "Invalid host"}},
		{"GET", "1-" + id + ".cloud.test", "/", nil, "cloud.test", route{kind: forSandbox, id: id, port: 1}},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
		r.Host = tt.host
		for name, value := range tt.header {
			r.Header.Set(name, value)
		}
		if got := find(r, tt.domain, "more.test"); got != tt.want {
			t.Errorf("%s %s at %q with %v: got %+v, want %+v", tt.method, tt.path, tt.host, tt.header, got, tt.want)
		}
	}
	for status, want := range map[int]bool{299: false, 300: true, 303: true, 304: false, 305: true, 399: true, 400: false} {
		if redirects(status) != want {
			t.Errorf("%d: want that it may redirect: %v", status, want)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodOptions, signature, nil)
	r.Header.Set("Access-Control-Request-Headers", "a, ,,b,")
	if answerPreflight(w, r); w.Header().Get("Access-Control-Allow-Headers") != "a, b" {
		t.Errorf("allowed %q, want a, b", w.Header().Get("Access-Control-Allow-Headers"))
	}
}

// TestAuthorized checks which requests have the token of a sandbox, and that no token is equal to none.
func TestAuthorized(t *testing.T) {
	u := newSleeper(Sandbox{ID: id, AccessToken: token}, nil)
	defer u.close()
	right := "signature=" + sign("/a:read::"+token, "")
	for target, want := range map[string]bool{
		"/files?path=/a&" + right: true, "/files?path=/b&" + right: false, "/other?path=/a&" + right: false, "/files?path=/a": false, "/files": false,
		"/files?path=/a&signature_expiration=" + strings.Repeat("1", maxExpiration+1) + "&" + right: false,
	} {
		if got := u.authorized(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)); got != want {
			t.Errorf("%s: got %v, want %v", target, got, want)
		}
	}
	if sameToken("", "") || sameToken(token, "") || !sameToken(token, token) || sameToken("", token) {
		t.Error("a token is equal to none, or not to itself")
	}
}

// TestOtherPanics checks that a handler that fails in another way than by an abort fails as before, and that
// its connection is not reset.
func TestOtherPanics(t *testing.T) {
	for _, reason := range []any{"text", io.EOF, http.ErrAbortHandler} {
		near, far := net.Pipe()
		inner := &lingering{Conn: near}
		func() {
			defer func() {
				if got := recover(); got != reason {
					t.Errorf("got %v, want %v", got, reason)
				}
			}()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			defer resetWhenAborted(taken{httptest.NewRecorder(), inner}, r)
			panic(reason)
		}()
		if reset := len(inner.calls) > 0; reset != (reason == http.ErrAbortHandler) { //nolint:errorlint // the same
			t.Errorf("%v: the connection was reset: %v", reason, reset)
		}
		_ = near.Close()
		_ = far.Close()
	}
}

// taken is an answer whose connection can be taken over.
type taken struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w taken) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.conn, nil, nil }

// TestStartOfGoneClient checks that the start of a process is not sent if its client goes while it waits for
// a place.
func TestStartOfGoneClient(t *testing.T) {
	u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
		t.Error("the sandbox was dialled")
		return nil, ErrGone
	}}, nil)
	defer u.close()
	ctx, leave := context.WithCancelCause(t.Context())
	leave(io.ErrClosedPipe)
	ctx = context.WithValue(ctx, targetKey{}, &target{upstream: u, spell: u.spell(), port: protocol.PortEnvd})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:49983"+startPath, nil)
	full := newStarts()
	all := int64(startsPerProcessor * runtime.GOMAXPROCS(0))
	if !full.places.TryAcquire(all) || full.places.TryAcquire(1) {
		t.Fatalf("there are other than %d places", all)
	}
	res, err := roundTripper{full}.RoundTrip(r)
	if res != nil || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v and error %v, want why the client has gone", res, err)
	}
}

// TestDialsOnce checks that only a port that is closed is dialled again.
func TestDialsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for err, want := range map[error]int{ErrPortClosed: 3, ErrGone: 1, ErrTooMany: 1, io.EOF: 1} {
			dials := 0
			u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { dials++; return nil, err }}, []time.Duration{time.Second, time.Second})
			if _, got := u.spell().dial(t.Context(), "tcp", "127.0.0.1:1"); !errors.Is(got, err) || dials != want {
				t.Errorf("%v: got error %v after %d dials, want %d", err, got, dials, want)
			}
			u.close()
		}
	})
}
