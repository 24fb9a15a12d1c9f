//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// testEgress is an egress for tests.
type testEgress struct {
	dial    func(ctx context.Context, host string, port uint16) (net.Conn, error)
	connect func(ctx context.Context, inside *net.TCPConn) (net.Conn, error)
	answer  func(ctx context.Context, query []byte) []byte
	closed  bool
}

func (e *testEgress) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if e.dial == nil {
		return nil, errors.New("nowhere")
	}
	return e.dial(ctx, host, port)
}

func (e *testEgress) Connect(ctx context.Context, inside *net.TCPConn) (net.Conn, error) {
	if e.connect == nil {
		return nil, errors.New("nowhere")
	}
	return e.connect(ctx, inside)
}

func (e *testEgress) Answer(ctx context.Context, query []byte) []byte {
	if e.answer == nil {
		return nil
	}
	return e.answer(ctx, query)
}

func (e *testEgress) Closed() bool { return e.closed }

// transparentRoom returns a room whose sandboxes have a transparent egress path.
func transparentRoom(t testing.TB) *Room {
	t.Helper()
	r := newRoomWith(t, Options{Binary: withDetector})
	if egress := r.Report().Egress; egress != engine.EgressTransparent {
		if os.Getenv("CI") == "true" {
			t.Fatal(egress)
		}
		t.Skip(egress)
	}
	return r
}

// If the machine has no transparent egress path the proxy still works, and the
// report says so.
func TestWithoutWay(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.egressPath = wire.EgressNone
	s := newSandbox(t, r, engine.SandboxOptions{Egress: &testEgress{dial: func(_ context.Context, host string, _ uint16) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len("ping")))
			fmt.Fprint(far, "hello from ", host)
			far.Close()
		}()
		return near, nil
	}}})
	if got := call(t, s, "/egress", testRequest{Host: "example.com", Port: 443}); got.Output != "hello from example.com" {
		t.Errorf("by the proxy: %+v", got)
	}
	if got := sh(t, s, "curl -sS -m 20 http://203.0.113.1/"); got.Status != 7 {
		t.Errorf("directly: %+v", got)
	}
	if got := sh(t, s, "getent hosts example.com"); got.Status != 2 {
		t.Errorf("a name: %+v", got)
	}
	s.SetEgress(&testEgress{closed: true})
	r.judgeEgressPath(&Sandbox{traffic: traffic{noExit: "nftables: no such file"}})
	if report := r.Report(); report.Egress != "proxy only: nftables: no such file" || !strings.Contains(strings.Join(report.Notes, " "), "modprobe nft_tproxy") || r.egressPath != wire.EgressNone {
		t.Errorf("%+v", report)
	}
}

// origin serves HTTP on the host; connections to any address lead to it.
func origin(t testing.TB, handler http.Handler) *testEgress {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return &testEgress{connect: func(ctx context.Context, inside *net.TCPConn) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}}
}

// Programs without proxy settings reach the host to which the server connects them,
// and the server learns the requested address.
func TestTransparent(t *testing.T) {
	t.Parallel()
	r := transparentRoom(t)
	var wanted atomic.Value
	e := origin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.Host) }))
	connect := e.connect
	e.connect = func(ctx context.Context, inside *net.TCPConn) (net.Conn, error) {
		wanted.Store(inside.LocalAddr().String())
		return connect(ctx, inside)
	}
	e.answer = func(_ context.Context, query []byte) []byte { return append([]byte("answer to "), query...) }
	s := newSandbox(t, r, engine.SandboxOptions{Egress: e})
	got := sh(t, s, "curl -sS -m 10 http://203.0.113.7:8080/")
	if got.Output != "hello 203.0.113.7:8080" || wanted.Load() != "203.0.113.7:8080" {
		t.Errorf("got %+v, the server saw %v", got, wanted.Load())
	}
	if got := sh(t, s, "curl -sS -g -m 10 'http://[::ffff:203.0.113.8]/'"); !strings.HasPrefix(got.Output, "hello") || wanted.Load() != "203.0.113.8:80" {
		t.Errorf("v4-mapped: %+v, the server saw %v", got, wanted.Load())
	}
	const ask = `import socket
for to in ("169.254.0.22", "8.8.8.8"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((to, 53))
    s.send(b"udp")
    print(s.recv(512).decode())
c = socket.create_connection(("8.8.8.8", 53))
for q in (b"one", b"two"):
    c.sendall(len(q).to_bytes(2, "big") + q)
    print(c.recv(512)[2:].decode())`
	if got := sh(t, s, "python3 -c '"+ask+"'"); got.Output != "answer to udp\nanswer to udp\nanswer to one\nanswer to two\n" {
		t.Errorf("names: %+v", got)
	}
	for what, want := range map[string]string{
		"s.connect((\"127.0.0.1\", 4))":                                                        "[Errno 111]",
		"s.connect((\"2001:db8::1\", 443, 0, 0))":                                              "[Errno 101]",
		"s.connect((\"203.0.113.7\", 443)); s.send(b\"x\"); s.recv(1)":                         "[Errno 111]",
		"s.setsockopt(socket.SOL_SOCKET, 36, 1)":                                               "[Errno 1]",
		"s.setsockopt(socket.SOL_IP, 19, 1)":                                                   "[Errno 1]",
		"socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)":                                "[Errno 97]",
		"s.bind((\"169.254.0.22\", 1))":                                                        "[Errno 98]",
		"s.connect((\"203.0.113.7\", 0)); s.send(bytes([8, 0, 0, 0, 0, 0, 0, 0])); s.recv(64)": "[Errno 111]",
	} {
		kind := "socket.AF_INET, socket.SOCK_STREAM"
		switch {
		case strings.Contains(what, "2001"):
			kind = "socket.AF_INET6, socket.SOCK_STREAM"
		case strings.Contains(what, "recv(1)"):
			kind = "socket.AF_INET, socket.SOCK_DGRAM"
		case strings.Contains(what, "recv(64)"):
			kind = "socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP"
		}
		code := "import socket\ntry:\n    s = socket.socket(" + kind + "); s.settimeout(5); " + what + "; print(\"done\")\nexcept OSError as e: print(e)"
		if got := sh(t, s, "python3 -c '"+code+"'"); !strings.HasPrefix(got.Output, want) {
			t.Errorf("%s: %+v, want %s", what, got, want)
		}
	}
	if got := sh(t, s, "python3 -c 'import socket; socket.create_server((\"0.0.0.0\", 80)); print(\"ok\")'"); got.Output != "ok\n" {
		t.Errorf("port 80: %+v", got)
	}
}
