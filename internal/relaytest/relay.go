// Package relaytest provides a TCP relay for tests. A test can cut the connections of the relay.
package relaytest

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// A Relay passes connections on to a server until they are cut.
type Relay struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	to    string
	conns map[net.Conn]struct{}
	shut  bool
	again chan struct{} // closed when a connection is passed on after Shut
	next  func() int64  // see CutAfter; nil: there is no further cut
	left  int64         // bytes until the next cut
}

// New starts a relay to the server of the URL to. The relay ends with the test.
func New(t testing.TB, to string) *Relay {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	r := &Relay{listener: listener, conns: map[net.Conn]struct{}{}, again: make(chan struct{})}
	r.Lead(t, to)
	r.work.Go(r.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		r.Shut()
		r.work.Wait()
	})
	return r
}

// URL returns the address of the relay, for clients.
func (r *Relay) URL() string { return "http://" + r.listener.Addr().String() }

// Lead makes the relay pass new connections on to the server of another URL.
func (r *Relay) Lead(t testing.TB, to string) {
	t.Helper()
	target, err := url.Parse(to)
	must.Do(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = target.Host
}

func (r *Relay) target() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to
}

// Cut ends all connections. The relay still passes on new connections.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

// CutAfter cuts all connections again and again, each time when the server has sent a number of further
// bytes. next returns this number for each cut; a negative number means that there is no further cut.
func (r *Relay) CutAfter(next func() int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = next
	r.count()
}

// count begins to count the bytes until the next cut; the caller holds mu.
func (r *Relay) count() {
	if r.left = r.next(); r.left < 0 {
		r.next = nil
	}
}

// allow returns how many of the n bytes that the server has sent pass before a cut.
func (r *Relay) allow(n int) (pass int, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil || int64(n) <= r.left {
		r.left -= int64(n)
		return n, false
	}
	pass = int(r.left)
	r.count()
	return pass, true
}

// Shut ends all connections. It also ends every new connection until Reopen is called.
func (r *Relay) Shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.shut, r.again = true, make(chan struct{})
}

// Reopen makes the relay pass on connections again. The returned channel is closed when the first
// of these connections is passed on.
func (r *Relay) Reopen() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = false
	return r.again
}

// end closes all connections; the caller holds mu.
func (r *Relay) end() {
	for c := range r.conns {
		c.Close()
	}
}

func (r *Relay) serve() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		to, err := new(net.Dialer).Dial("tcp", r.target())
		if err != nil {
			from.Close()
			continue
		}
		r.begin(from, to)
	}
}

// begin passes bytes between two connections. If the relay is shut, it closes the connections
// instead.
func (r *Relay) begin(from, to net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		from.Close()
		to.Close()
		return
	}
	r.conns[from], r.conns[to] = struct{}{}, struct{}{}
	select {
	case <-r.again:
	default:
		close(r.again)
	}
	r.pass(to, from, func(n int) (int, bool) { return n, false })
	r.pass(from, to, r.allow)
}

// pass copies bytes until one of the connections ends, and then closes both. allow returns how many
// bytes pass before all connections are cut.
func (r *Relay) pass(to, from net.Conn, allow func(n int) (pass int, cut bool)) {
	r.work.Go(func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			n, cut := allow(n)
			if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
				break
			}
			if cut {
				r.Cut()
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			c.Close()
			delete(r.conns, c)
		}
	})
}
