package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestLateConnectionEndsWithClient checks that the connection for a request ends with the client,
// even if it is made after the client has ended.
func TestLateConnectionEndsWithClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, made, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		first := true
		d := &Dialer{Resolver: world}
		recording(t, d)
		connectBy(t, d, func(ctx context.Context, _ *net.Dialer, _ string) (net.Conn, error) {
			_, near, far := newDuplex(ctx)
			if first {
				first = false
				go func() { // answers once
					if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
						fmt.Fprint(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					}
				}()
				return near, nil
			}
			close(begun)
			<-made
			go func() { defer close(ended); _, _ = far.Read(make([]byte, 1)) }()
			return near, nil
		})
		e := &Egress{Dialer: d, Rules: mustRules(t, true, "*.public.test public.test", allTraffic), Denials: &Denials{}}
		conn, err := e.Dial(t.Context(), "public.test", portHTTP)
		must.Do(t, err)
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: public.test\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.Do(t, err)
		_ = answer.Body.Close()
		go fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: api.public.test\r\n\r\n")
		<-begun
		_ = conn.Close()
		synctest.Wait()
		close(made)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the connection is open after its client has gone")
		}
	})
}

// awaited is a context that counts the functions waiting for its end.
type awaited struct {
	context.Context //nolint:containedctx // it is one
	by              atomic.Int64
}

// AfterFunc implements the interface that [context.AfterFunc] uses.
func (a *awaited) AfterFunc(f func()) (stop func() bool) {
	a.by.Add(1)
	stopped := context.AfterFunc(a.Context, f)
	return func() bool { a.by.Add(-1); return stopped() }
}

// Value hides the inner context. Otherwise context.AfterFunc would wait for the end of that
// context.
func (*awaited) Value(any) any { return nil }

// TestGateForgets checks that a gate forgets ended connections. Otherwise a client could fill the
// memory with them.
func TestGateForgets(t *testing.T) {
	t.Parallel()
	d := &Dialer{Resolver: world}
	recording(t, d)
	connectBy(t, d, newWebsite(t).connect)
	ctx := &awaited{Context: t.Context()}
	g := &gate{egress: &Egress{Dialer: d, Denials: &Denials{}}, ctx: ctx}
	dial := g.proxy(true).Transport.(*http.Transport).DialContext
	before := ctx.by.Load()
	conn, err := dial(t.Context(), "tcp", "public.test:80")
	must.Do(t, err)
	if n := ctx.by.Load() - before; n != 1 {
		t.Errorf("%d things wait for the end of the gate with a connection, want 1", n)
	}
	_ = conn.Close()
	if n := ctx.by.Load() - before; n != 0 {
		t.Errorf("%d things wait for the end of the gate after its connection, want none", n)
	}
}

// TestGateEndsWhileItDials checks that a connection of a gate that is being made ends with the gate.
func TestGateEndsWhileItDials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &Dialer{Resolver: world}
		recording(t, d)
		dialling := make(chan struct{})
		connectBy(t, d, func(ctx context.Context, _ *net.Dialer, _ string) (net.Conn, error) {
			close(dialling)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ended, end := context.WithCancel(t.Context())
		g := &gate{egress: &Egress{Dialer: d, Denials: &Denials{}}, ctx: ended}
		result := make(chan error, 1)
		go func() {
			_, err := g.proxy(true).Transport.(*http.Transport).DialContext(t.Context(), "tcp", "public.test:80")
			result <- err
		}()
		patience.Receive(t, "the gate to dial", dialling)
		end()
		must.Is(t, patience.Receive(t, "the end of the dial", result), context.Canceled)
	})
}

// TestConnectionEndsWithoutClient checks that a connection is closed if its client has gone before the
// first message is passed on.
func TestConnectionEndsWithoutClient(t *testing.T) {
	t.Parallel()
	for _, port := range []uint16{portHTTP, portHTTPS} {
		client, inside := net.Pipe()
		_, _ = client.Close(), inside.Close()
		near, far := net.Pipe()
		outside := &failing{Conn: near}
		e := &Egress{Dialer: &Dialer{}, Denials: &Denials{}}
		conn, err := e.carry(t.Context(), inside, outside, "public.test", &said{port: port})
		if conn != nil || !errors.Is(err, io.ErrClosedPipe) || !outside.closed.Load() {
			t.Errorf("port %d: got connection %v and error %v, closed: %v", port, conn, err, outside.closed.Load())
		}
		_ = far.Close()
	}
}
