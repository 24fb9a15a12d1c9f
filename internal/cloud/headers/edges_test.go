package headers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

// The tests of this file run before the parallel ones: a mistake that they find at once would make some of
// those wait.

// TestBounds checks the bounds of a door's connections on both sides. Without one of them, a sandbox or a
// host could hold a connection, or memory, for as long as it likes.
func TestBounds(t *testing.T) {
	roots := x509.NewCertPool()
	d := New(Options{Roots: roots})
	d.Set(rules(t, bearer), nil)
	defer d.Close()
	s, now := d.server, d.current.Load()
	out := now.transport
	for what, tt := range map[string]struct{ got, want any }{
		"time for a head":               {s.ReadHeaderTimeout, 30 * time.Second},
		"time between requests":         {s.IdleTimeout, 2 * time.Minute},
		"bytes of a head":               {s.MaxHeaderBytes, 256 << 10},
		"requests of a connection":      {s.HTTP2.MaxConcurrentStreams, 250},
		"oldest TLS inside":             {s.TLSConfig.MinVersion, uint16(tls.VersionTLS12)},
		"a connection names its host":   {s.TLSConfig.SessionTicketsDisabled, true},
		"requests at once":              {cap(d.busy), 256},
		"oldest TLS outside":            {out.TLSClientConfig.MinVersion, uint16(tls.VersionTLS12)},
		"roots":                         {out.TLSClientConfig.RootCAs == roots, true},
		"answers stay compressed":       {out.DisableCompression, true},
		"idle connections to hosts":     {out.MaxIdleConns, 16},
		"time of idle ones":             {out.IdleConnTimeout, 2 * time.Minute},
		"time of a handshake":           {out.TLSHandshakeTimeout, 30 * time.Second},
		"wait for 100 Continue":         {out.ExpectContinueTimeout, time.Second},
		"bytes of an answer's head":     {out.MaxResponseHeaderBytes, int64(1 << 20)},
		"HTTP/2 to hosts":               {out.ForceAttemptHTTP2, true},
		"answers are passed on at once": {now.proxy.FlushInterval, time.Duration(-1)},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if !slices.Equal(s.TLSConfig.NextProtos, []string{"h2", "http/1.1"}) {
		t.Errorf("got the protocols %q", s.TLSConfig.NextProtos)
	}
	for what, writes := range map[string]bool{"server": s.ErrorLog == nil || s.ErrorLog.Writer() == os.Stderr, "proxy": now.proxy.ErrorLog == nil || now.proxy.ErrorLog.Writer() == os.Stderr} {
		if writes {
			t.Errorf("a sandbox can fill the log of the process: that of the %s", what)
		}
	}
}

// TestOrganization checks that the certificates of an authority and of its hosts say whose they are.
func TestOrganization(t *testing.T) {
	a, err := NewAuthority("i1")
	must.Do(t, err)
	leaf, err := a.certificate("api.test")
	must.Do(t, err)
	for _, cert := range []*x509.Certificate{a.cert, leaf.Leaf} {
		if !slices.Equal(cert.Subject.Organization, []string{"e2bctl sandbox"}) || !cert.BasicConstraintsValid {
			t.Errorf("got %v, with valid constraints: %v", cert.Subject, cert.BasicConstraintsValid)
		}
	}
	if len(leaf.Certificate) != 1 || leaf.PrivateKey != a.leaf {
		t.Errorf("got %d certificates, and the key %v", len(leaf.Certificate), leaf.PrivateKey)
	}
}

// aborts reports whether a handler is aborted, so that its client sees no end of an answer.
func aborts(handle func()) (aborted bool) {
	defer func() {
		err, ok := recover().(error)
		aborted = ok && errors.Is(err, http.ErrAbortHandler)
	}()
	handle()
	return false
}

// TestRefuse checks the answer to a request that was not forwarded. A request whose client has gone, or
// that comes after the end of the door, is aborted.
func TestRefuse(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	request := func(ctx context.Context) *http.Request {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", nil)
		r.TLS.ServerName = "API.test."
		return r
	}
	for name, tt := range map[string]struct {
		err    error
		status int
	}{
		"denied": {&url.Error{Err: &network.DeniedError{Host: "api.test", Rule: "a rule"}}, http.StatusForbidden},
		"failed": {errors.New(strings.Repeat("x", 1000)), http.StatusBadGateway},
	} {
		w := httptest.NewRecorder()
		refuse(w, request(t.Context()), tt.err)
		if text := w.Body.String(); w.Code != tt.status || !strings.HasPrefix(text, "e2bctl: the request was not sent to api.test: ") || len(text) > 600 {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, text, tt.status)
		}
		if w = httptest.NewRecorder(); !aborts(func() { refuse(w, request(gone), tt.err) }) || w.Body.Len() > 0 {
			t.Errorf("%s, and the client has gone: got %d %s", name, w.Code, w.Body)
		}
	}
	d := New(Options{})
	d.Set(rules(t, bearer), func(context.Context, string, uint16) (net.Conn, error) { return nil, net.ErrClosed })
	d.Close()
	if w := httptest.NewRecorder(); !aborts(func() { d.serve(w, request(t.Context())) }) || w.Body.Len() > 0 {
		t.Errorf("after the end: got %d %s", w.Code, w.Body)
	}
}

// TestRewrite checks each part of the request that a host receives.
func TestRewrite(t *testing.T) {
	in := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a%2Fb?c=d;e", nil)
	in.Host, in.TLS = "API.test:443", &tls.ConnectionState{ServerName: "API.test."}
	in.Header = http.Header{"X-Forwarded-Host": {"mine"}, "X-Key": {"mine"}}
	in.Trailer = http.Header{"X-Key": nil, "X-Own": nil}
	in = in.WithContext(context.WithValue(in.Context(), values{}, http.Header{"X-Key": {"of the rule"}}))
	out := in.Clone(in.Context())
	out.URL.RawQuery, out.Header, out.Trailer, out.Host = "", http.Header{}, nil, ""
	rewrite(&httputil.ProxyRequest{In: in, Out: out})
	if got := out.URL.String(); got != "https://api.test/a%2Fb?c=d;e" || out.Host != "API.test:443" {
		t.Errorf("got %s of %s", got, out.Host)
	}
	if diff := cmp.Diff(http.Header{"X-Forwarded-Host": {"mine"}, "X-Key": {"of the rule"}}, out.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(http.Header{"X-Own": nil}, out.Trailer); diff != "" {
		t.Errorf("trailers (-want +got):\n%s", diff)
	}
}
