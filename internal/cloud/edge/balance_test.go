package edge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// settled checks that ended requests have left nothing: no sandbox counts a request, only idle
// connections are open, and all places of starts are free.
func settled(t *testing.T, rt *Router) {
	t.Helper()
	if t.Failed() { // a test that ended early leaves requests
		return
	}
	places := rt.proxy.Transport.(roundTripper).starts.places
	all := int64(startsPerProcessor * runtime.GOMAXPROCS(0))
	patience.Until(t, "all places of starts are free", func() bool { return places.TryAcquire(all) })
	places.Release(all)
	rt.mu.RLock()
	upstreams := slices.Collect(maps.Values(rt.sandboxes))
	rt.mu.RUnlock()
	for _, u := range upstreams {
		answered(t, u)
		s := u.spell()
		if s == nil {
			continue
		}
		patience.Until(t, u.ID+" has no connection", func() bool {
			s.own.CloseIdleConnections()
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.conns) == 0
		})
	}
}

// answered waits until no request to a sandbox is in flight.
func answered(t *testing.T, u *upstream) {
	t.Helper()
	for k := range u.admissions {
		patience.Until(t, fmt.Sprintf("%s has no request of class %d in flight", u.ID, k), func() bool { return u.admissions[k].inFlight.Load() == 0 })
	}
}

// opened counts the open connections of a dialer.
type opened struct{ atomic.Int64 }

type openedConn struct {
	net.Conn
	closed func()
}

func (c *openedConn) Close() error { c.closed(); return c.Conn.Close() }

func (o *opened) dial(inner func(context.Context, int) (net.Conn, error)) func(context.Context, int) (net.Conn, error) {
	return func(ctx context.Context, port int) (net.Conn, error) {
		conn, err := inner(ctx, port)
		if err != nil {
			return nil, err
		}
		o.Add(1)
		var once atomic.Bool
		return &openedConn{conn, func() {
			if once.CompareAndSwap(false, true) {
				o.Add(-1)
			}
		}}, nil
	}
}

// TestAdmittedConnections checks which connection is closed to make room. A connection whose
// request is in a sandbox stays, and a connection with a refused request is closed.
func TestAdmittedConnections(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	rt := New(Options{})
	rt.Add(Sandbox{ID: id, TrafficToken: traffic, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-end
		_, _ = io.WriteString(w, "inside")
	}})})
	defer rt.Remove(id)
	server := httptest.NewUnstartedServer(connlimit.Handler(rt))
	server.Listener = connlimit.New(server.Listener.(*net.TCPListener), connlimit.Options{Max: 2, Patience: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	server.Config.ConnContext = connlimit.ConnContext
	server.Start()
	defer server.Close()
	connect := func() (net.Conn, *bufio.Reader) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		must.Do(t, err)
		t.Cleanup(func() { conn.Close() })
		must.Do(t, conn.SetDeadline(patience.Deadline()))
		return conn, bufio.NewReader(conn)
	}
	ask := func(conn net.Conn, token string) {
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 3000-%s.localhost\r\n%s: %s\r\n\r\n", id, protocol.HeaderTraffic, token)
	}
	admitted, answer := connect()
	ask(admitted, traffic)
	patience.Receive(t, "the beginning of a request", begun)
	for range 2 {
		refused, answer := connect()
		ask(refused, "wrong")
		resp, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatalf("got error %v for a request beside one that is refused, want its answer", err)
		}
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("got %d, want 403", resp.StatusCode)
		}
	}
	close(end)
	resp, err := http.ReadResponse(answer, nil)
	if err != nil {
		t.Fatalf("got error %v for a request that reached the sandbox, want its answer", err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "inside" {
		t.Errorf("got %d %q, want what the sandbox says", resp.StatusCode, body)
	}
}

// TestRequestsAreLogged checks that the request log has the sandbox and port of each request, even
// if the sandbox refused it. Requests that reached no sandbox have neither.
func TestRequestsAreLogged(t *testing.T) {
	t.Parallel()
	rt := New(Options{API: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	rt.Add(Sandbox{ID: id, AccessToken: token, TrafficToken: traffic, Dial: serve(t, map[int]http.HandlerFunc{protocol.PortEnvd: func(http.ResponseWriter, *http.Request) {}})})
	defer rt.Remove(id)
	for _, tt := range []struct {
		path    string
		header  map[string]string
		sandbox string
		port    int
	}{
		{"/", by(id, "49983"), id, 49983},
		{"/", by(id, "3000"), id, 3000},
		{signedPath, nil, id, 49983},
		{"/", by("inobody", "3000"), "", 0},
		{"/init", by(id, "49983"), "", 0},
		{"/", nil, "", 0},
	} {
		var log requestlog.Log
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+tt.path, nil)
		for name, value := range tt.header {
			r.Header.Set(name, value)
		}
		log.Handler(rt).ServeHTTP(httptest.NewRecorder(), r)
		entries := log.Entries()
		if len(entries) != 1 || entries[0].Sandbox != tt.sandbox || entries[0].Port != tt.port {
			t.Errorf("%s with %v: got %+v, want one entry of %q and port %d", tt.path, tt.header, entries, tt.sandbox, tt.port)
		}
	}
}
