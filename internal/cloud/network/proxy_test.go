package network

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// startProxy runs a proxy that connects to one address for every allowed host.
func startProxy(t *testing.T, address string) string {
	t.Helper()
	b := newBalance(t)
	p := NewProxy(func(ctx context.Context, host string, _ uint16) (net.Conn, error) {
		switch host {
		case "denied.test":
			return nil, &DeniedError{Host: host, Address: netip.MustParseAddr("10.0.0.1"), Rule: rulePrivate}
		case "down.test":
			return nil, errors.New("connection refused")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return b.count(conn), nil
	})
	return "http://" + serveProxy(t, p)
}

func through(t *testing.T, proxy string) *http.Client {
	t.Helper()
	u, err := url.Parse(proxy)
	must.Do(t, err)
	transport := &http.Transport{Proxy: http.ProxyURL(u)}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestProxyForwardsPlainHTTP(t *testing.T) {
	t.Parallel()
	var header, trailer http.Header
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		header, trailer = r.Header, r.Trailer
		_, _ = io.WriteString(w, r.Host+r.RequestURI)
	}))
	defer origin.Close()
	client := through(t, startProxy(t, origin.Listener.Addr().String()))
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://allowed.test/a%2Fb?c=d;e", io.MultiReader(strings.NewReader("body")))
	r.Trailer = http.Header{"X-Last": {"1"}}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		r.Header.Set(name, "of the client")
	}
	r.Header.Set("Connection", "X-Hop")
	r.Header.Set("X-Hop", "1")
	r.Header.Set("Proxy-Authorization", "secret")
	r.Header.Set("X-End", "1")
	resp, err := client.Do(r)
	must.Do(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if want := "allowed.test/a%2Fb?c=d;e"; string(body) != want {
		t.Errorf("body %q, want %q", body, want)
	}
	for name, want := range map[string]string{"X-Hop": "", "Proxy-Authorization": "", "X-End": "1", "Forwarded": "of the client", "X-Forwarded-For": "of the client", "X-Forwarded-Host": "of the client", "X-Forwarded-Proto": "of the client"} {
		if got := header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if got := trailer.Get("X-Last"); got != "1" {
		t.Errorf("the trailer is %q, want that of the client", got)
	}
}

func TestProxyTunnels(t *testing.T) {
	t.Parallel()
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer origin.Close()
	client := through(t, startProxy(t, origin.Listener.Addr().String()))
	client.Transport.(*http.Transport).TLSClientConfig = origin.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://allowed.test/", nil)
	resp, err := client.Do(r)
	must.Do(t, err)
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "hello" {
		t.Errorf("body %q, want %q", body, "hello")
	}
}

func TestProxyRefusals(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, "127.0.0.1:1")
	tests := []struct {
		request string
		status  int
		body    string
	}{
		{"CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n", 403,
			"no connection to denied.test:443: network: denied.test (10.0.0.1) is not reachable from a sandbox: private network\n"},
		{"GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n\r\n", 403,
			"no connection to denied.test: network: denied.test (10.0.0.1) is not reachable from a sandbox: private network\n"},
		{"CONNECT down.test:443 HTTP/1.1\r\nHost: down.test:443\r\n\r\n", 502, "no connection to down.test:443: connection refused\n"},
		{"CONNECT down.test HTTP/1.1\r\nHost: down.test\r\n\r\n", 400, "CONNECT needs host:port\n"},
		{"CONNECT down.test:0 HTTP/1.1\r\nHost: down.test:0\r\n\r\n", 400, "CONNECT needs host:port\n"},
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "this is an HTTP proxy: ask for an absolute http URI or CONNECT\n"},
		{"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "this is an HTTP proxy: ask for an absolute http URI or CONNECT\n"},
	}
	for _, tt := range tests {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(proxy, "http://"))
		must.Do(t, err)
		_, _ = io.WriteString(conn, tt.request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.Do(t, err)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tt.status || string(body) != tt.body {
			t.Errorf("%.30q: %d %q, want %d %q", tt.request, resp.StatusCode, body, tt.status, tt.body)
		}
		_ = conn.Close()
	}
}

// TestTunnelHalfClose checks that each side may close its sending half, and that the bytes that the
// client sends before the answer are not lost.
func TestTunnelHalfClose(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		said, _ := io.ReadAll(conn) // until the client ends its half
		_, _ = io.WriteString(conn, "you said "+string(said))
	}()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(startProxy(t, listener.Addr().String()), "http://"))
	must.Do(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT a.test:1 HTTP/1.1\r\nHost: a.test:1\r\n\r\nearly ")
	const established = "HTTP/1.1 200 Connection Established\r\n\r\n"
	answer := make([]byte, len(established))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != established {
		t.Fatalf("got %q, %v, want %q and no error", answer, err, established)
	}
	_, _ = io.WriteString(conn, "late")
	_ = conn.(*net.TCPConn).CloseWrite()
	if answer, err := io.ReadAll(conn); string(answer) != "you said early late" || err != nil {
		t.Errorf("got %q, %v, want %q and no error", answer, err, "you said early late")
	}
}

// TestTunnelGoesOnAfterTheServer checks that the server may close its sending half first, and still
// receives the client's bytes.
func TestTunnelGoesOnAfterTheServer(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	read := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			read <- err.Error()
			return
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(conn)
		read <- string(all)
	}()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(startProxy(t, listener.Addr().String()), "http://"))
	must.Do(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT a.test:1 HTTP/1.1\r\nHost: a.test:1\r\n\r\n")
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(conn, "late")
	_ = conn.(*net.TCPConn).CloseWrite()
	if got := <-read; got != "late" {
		t.Errorf("the server read %q, want what came late", got)
	}
}
