// Package pipetest runs a real HTTP server for tests. The server's connections are pipes within the
// process, so that server and client can run in a bubble of testing/synctest. In a bubble, a wait
// takes no time, and measured times are exact.
package pipetest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
)

// Serve starts a server that ends with the test. It returns a transport that sends all requests to
// this server, whatever their host.
func Serve(t testing.TB, handler http.Handler) *http.Transport {
	t.Helper()
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server on pipes ended: %v", err)
		}
	}()
	transport := &http.Transport{DialContext: listener.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return transport
}

// pipes is a listener that accepts the connections of dial.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accepted <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
