package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/patience"
)

// balance counts open connections.
type balance struct{ open atomic.Int64 }

// newBalance returns a balance that fails the test if a connection is open at its end.
func newBalance(t testing.TB) *balance {
	t.Helper()
	b := &balance{}
	t.Cleanup(func() {
		if t.Failed() { // a test that ended early leaves connections
			return
		}
		patience.Until(t, "each connection is closed", func() bool { return b.open.Load() == 0 })
	})
	return b
}

// count returns conn, which then counts as open until it is closed.
func (b *balance) count(conn net.Conn) net.Conn {
	b.open.Add(1)
	return &counted{Conn: conn, closed: sync.OnceFunc(func() { b.open.Add(-1) })}
}

// counted is a connection in a balance.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (c *counted) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// countedListener counts its accepted connections.
type countedListener struct {
	net.Listener
	*balance
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.count(conn), nil
}

// connectBy replaces the function with which a dialer connects. All its connections must be closed
// at the end of the test.
func connectBy(t testing.TB, d *Dialer, connect func(ctx context.Context, nd *net.Dialer, address string) (net.Conn, error)) {
	t.Helper()
	b := newBalance(t)
	d.connect = func(ctx context.Context, nd *net.Dialer, address string) (net.Conn, error) {
		conn, err := connect(ctx, nd, address)
		if err != nil {
			return nil, err
		}
		return b.count(conn), nil
	}
}

// serveProxy runs a proxy until the end of the test, and returns its address. At the end, none of
// its connections may be open, and no tunnel may be counted.
func serveProxy(t testing.TB, p *Proxy) string {
	t.Helper()
	b := newBalance(t)
	var serving sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		p.ServeHTTP(w, r)
	}))
	server.Listener = countedListener{server.Listener, b}
	server.Start()
	t.Cleanup(func() {
		if t.Failed() { // its requests may never end
			server.CloseClientConnections()
			return
		}
		server.Close()
		_ = p.Close()
		serving.Wait()
		if n := p.tunnels.Load(); n != 0 {
			t.Errorf("%d tunnels are counted after the last has ended", n)
		}
	})
	return server.Listener.Addr().String()
}

// TestTunnelsAreBounded checks that a proxy has at most 256 tunnels and plain HTTP requests at the
// same time. When one has ended in any way, there is room for another.
func TestTunnelsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dialling := make(chan struct{})
		p := NewProxy(func(_ context.Context, host string, _ uint16) (net.Conn, error) {
			<-dialling
			if host == "panics.test" {
				panic(http.ErrAbortHandler)
			}
			return nil, &DeniedError{Host: host, Rule: ruleDenied}
		})
		ask := func(method, url string) int {
			w := httptest.NewRecorder()
			defer func() { _ = recover() }()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, url, nil))
			return w.Code
		}
		for range 2 { // the second time there is as much room as before
			requests := [][2]string{{"CONNECT", "a.test:1"}, {"GET", "http://a.test/"}, {"CONNECT", "panics.test:1"}}
			for i := range 256 {
				go ask(requests[i%3][0], requests[i%3][1])
			}
			synctest.Wait()
			if got := p.tunnels.Load(); got != 256 {
				t.Errorf("got %d connections, want 256", got)
			}
			if got := ask("CONNECT", "a.test:1"); got != http.StatusServiceUnavailable {
				t.Errorf("one connection more: got status %d, want 503", got)
			}
			for range 256 {
				dialling <- struct{}{}
			}
			synctest.Wait()
			if got := p.tunnels.Load(); got != 0 {
				t.Errorf("got %d connections after the last has ended, want none", got)
			}
		}
	})
}

// TestRelayIsBounded checks that a relay has at most 256 connections. When one has ended, there is
// room for another.
func TestRelayIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBalance(t)
		relay := &Relay{Port: peerPort, Dial: func(context.Context, string, uint16) (net.Conn, error) {
			return nil, errors.New("nobody is there")
		}}
		accepted := make(oneConn)
		served := make(chan error, 1)
		go func() { served <- relay.Serve(accepted) }()
		var clients []net.Conn
		connect := func() net.Conn {
			near, far := net.Pipe()
			clients = append(clients, near)
			accepted <- b.count(far)
			synctest.Wait()
			return near
		}
		for range 256 {
			connect()
		}
		if got := b.open.Load(); got != 256 {
			t.Errorf("got %d open connections, want 256", got)
		}
		for range 2 {
			connect()
			if got := b.open.Load(); got != 256 {
				t.Errorf("one connection more: got %d open ones, want 256", got)
			}
		}
		_ = clients[0].Close()
		synctest.Wait()
		_, _ = fmt.Fprint(connect(), "GET / HTTP/1.1\r\n")
		if got := b.open.Load(); got != 256 {
			t.Errorf("after one has ended: got %d open connections, want 256", got)
		}
		for _, c := range clients {
			_ = c.Close()
		}
		close(accepted)
		synctest.Wait()
		if got := relay.open.Load(); got != 0 {
			t.Errorf("got %d connections after the last has ended, want none", got)
		}
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got error %v, want that of the listener", err)
		}
	})
}
