package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestBoundsOfForwarding checks the bounds of the connections to a sandbox, and that answers are passed on
// as they are, and at once.
func TestBoundsOfForwarding(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
}
