//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// The server gives away a bounded number of connections: no sandbox gets more
// than remain for all, and every sandbox gets some.
func TestFlowBudget(t *testing.T) {
	t.Parallel()
	const all = 1000
	b := flowBudget{left: all}
	fill := func(c *flowCount) (n int, err error) {
		for {
			if err = b.take(c); err != nil {
				return n, err
			}
			n++
		}
	}
	var hogs [10]flowCount
	total, last := 0, maxEgress+1
	for i := range hogs {
		n, err := fill(&hogs[i])
		if !errors.Is(err, engine.ErrTooMany) || n < assuredFlows || n > last {
			t.Errorf("hog %d got %d: %v", i, n, err)
		}
		total, last = total+n, n
	}
	if total > all+len(hogs)*assuredFlows || b.left < 0 {
		t.Errorf("%d were given, %d are left", total, b.left)
	}
	for i := range hogs {
		for hogs[i].open > 0 {
			b.release(&hogs[i])
		}
	}
	if b.left != all {
		t.Errorf("%d of %d came back", b.left, all)
	}
	if n, err := fill(&hogs[0]); n != maxEgress || !strings.Contains(err.Error(), fmt.Sprint(maxEgress)) {
		t.Errorf("alone %d: %v", n, err)
	}
}

// A change of the egress takes effect at once, also for open connections.
func TestSetEgress(t *testing.T) {
	t.Parallel()
	r := transparentRoom(t)
	on := origin(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	started := make(chan struct{}, 1)
	hanging := &testEgress{
		connect: func(context.Context, *net.TCPConn) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { // until it is cut off
				buf := make([]byte, 1)
				_, _ = far.Read(buf)
				started <- struct{}{}
				_, _ = far.Read(buf)
				far.Close()
			}()
			return near, nil
		},
	}
	s := newSandbox(t, r, engine.SandboxOptions{Egress: hanging})
	ended := make(chan testResponse, 1)
	go func() {
		ended <- sh(t, s, `python3 -c '
import socket
s = socket.create_connection(("203.0.113.1", 9))
s.send(b"x")
print("got", s.recv(1))'`)
	}()
	<-started
	s.SetEgress(&testEgress{closed: true})
	if got := <-ended; !strings.Contains(got.Output, "got b''") && !strings.Contains(got.Output, "reset") {
		t.Errorf("it was not cut off: %+v", got)
	}
	const get = "curl -sS -m 20 http://203.0.113.1/"
	for range 3 {
		if got := sh(t, s, get); got.Status != 7 {
			t.Errorf("closed: %+v", got)
		}
		if got := sh(t, s, "python3 -c 'import socket; socket.socket().bind((\"169.254.0.22\", 1))'"); !strings.Contains(got.Output, "Errno 98") {
			t.Errorf("the sandbox took the place of the listener: %+v", got)
		}
		s.SetEgress(on)
		if got := sh(t, s, get); got.Output != "hello" {
			t.Errorf("open: %+v", got)
		}
		s.SetEgress(&testEgress{closed: true})
	}
}

// Ten thousand connections of one sandbox cost the server no more than the
// sandbox's share, and another sandbox is served meanwhile.
func TestConnectFlood(t *testing.T) {
	t.Parallel()
	r := transparentRoom(t)
	var open, most atomic.Int64
	flood := &testEgress{connect: func(ctx context.Context, _ *net.TCPConn) (net.Conn, error) {
		n := open.Add(1)
		defer open.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	hostile := newSandbox(t, r, engine.SandboxOptions{ID: "hostile", Egress: flood})
	other := newSandbox(t, r, engine.SandboxOptions{ID: "other", Egress: origin(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))})
	got := sh(t, hostile, `python3 -c '
import socket
made, refused, keep = 0, 0, []
for i in range(2000):
    s = socket.socket(); s.settimeout(20)
    try:
        s.connect(("203.0.113.%d" % (i % 250 + 1), 1000 + i))
        made += 1
        if len(keep) < 400: keep.append(s)
        else: s.close()
    except OSError: refused += 1
print(made + refused)'`)
	if got.Output != "2000\n" || most.Load() > link.MaxDialling {
		t.Errorf("%+v, %d at once", got, most.Load())
	}
	if got := sh(t, other, "curl -sS -m 20 http://203.0.113.1/"); got.Output != "hello" {
		t.Errorf("the other: %+v", got)
	}
}

// DNS queries that are not answered in time do not pile up.
func TestQueryFlood(t *testing.T) {
	t.Parallel()
	r := transparentRoom(t)
	var open, most, busy atomic.Int64
	s := newSandbox(t, r, engine.SandboxOptions{Egress: &testEgress{answer: func(ctx context.Context, _ []byte) []byte {
		if ctx.Err() != nil {
			busy.Add(1)
			return []byte("busy")
		}
		n := open.Add(1)
		defer open.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-ctx.Done()
		return nil
	}}})
	got := sh(t, s, `python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)
s.connect(("169.254.0.22", 53))
for size in (0, 1, 512, 4096, 60000):
    s.send(b"q" * size)
for i in range(1000): s.send(b"question")
print(s.recv(512).decode())
c = [socket.create_connection(("169.254.0.22", 53)) for _ in range(50)]
for x in c: x.send(b"\xff\xff" + b"y" * 100)
c[0].settimeout(20)
try: print(c[0].recv(1))
except ConnectionError: pass'`)
	if !strings.HasPrefix(got.Output, "busy\n") || most.Load() > maxLookups || busy.Load() == 0 {
		t.Errorf("%+v, %d at once, %d refused", got, most.Load(), busy.Load())
	}
}
