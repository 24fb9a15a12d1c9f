//go:build linux

package docker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/must"
)

// toServer is an egress that leads to one server, whatever is asked for, except to
// denied.example.
type toServer struct {
	address string
	closed  bool
}

func (e toServer) Dial(ctx context.Context, host string, _ uint16) (net.Conn, error) {
	if host == "denied.example" || e.closed {
		return nil, deniedError{}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", e.address)
}

func (toServer) Connect(context.Context, *net.TCPConn) (net.Conn, error) {
	return nil, errors.New("no program of a container gets here")
}
func (toServer) Answer(context.Context, []byte) []byte { return nil }
func (e toServer) Closed() bool                        { return e.closed }

type deniedError struct{}

func (deniedError) Error() string { return "denied by a rule" }
func (deniedError) Denied() bool  { return true }

func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.Host) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// fetch asks for a URL as programs do that use the proxy of their environment.
const fetch = `python3 -c '
import sys, urllib.request, urllib.error
try: print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())
except urllib.error.HTTPError as e: print(e.code, e.read().decode())
except OSError as e: print("failed", e)
' `

// TestEgress checks that programs that use the proxy reach the hosts that the server allows, and
// that there is no other way out.
func TestEgress(t *testing.T) {
	t.Parallel()
	address := server(t)
	s := start(t, open(t, docker.Options{}), engine.SandboxOptions{Egress: toServer{address: address}})
	if got := run(t, s, fetch+"http://allowed.example/"); got != "hello allowed.example" {
		t.Errorf("allowed: got %q", got)
	}
	if got := run(t, s, fetch+"http://denied.example/"); !strings.HasPrefix(got, "403") || !strings.Contains(got, "denied by a rule") {
		t.Errorf("denied: got %q, want 403 and why", got)
	}
	host, port, _ := net.SplitHostPort(address)
	for _, direct := range []string{
		"unset http_proxy HTTP_PROXY; " + fetch + "http://" + address + "/",
		`python3 -c 'import socket; socket.create_connection(("` + host + `", ` + port + `), 5); print("hello")' 2>&1`,
		`python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 5); print("hello")' 2>&1`,
	} {
		if got, _ := try(t, s, "user", direct); strings.Contains(got, "hello") {
			t.Errorf("%s: got %q, want no way around the proxy", direct, got)
		}
	}
	if got := run(t, s, "ls /sys/class/net"); got != "lo" {
		t.Errorf("network devices: got %q, want lo", got)
	}
	s.SetEgress(toServer{address: address, closed: true})
	if got := run(t, s, fetch+"http://allowed.example/"); !strings.HasPrefix(got, "403") {
		t.Errorf("after the rules were changed: got %q, want 403", got)
	}
}

// TestNetworkDisabled checks that a sandbox without network has no proxy either.
func TestNetworkDisabled(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{NetworkDisabled: true}), engine.SandboxOptions{Egress: toServer{address: server(t)}})
	if got := run(t, s, `echo "$http_proxy" $(netstat -ltn | grep -c :3128)`); got != "0" {
		t.Errorf("proxy: got %q, want none", got)
	}
}

// TestCutEgress checks that connections through the old rules end with them.
func TestCutEgress(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			accepted <- conn
		}
	}()
	s := start(t, open(t, docker.Options{}), engine.SandboxOptions{Egress: toServer{address: listener.Addr().String()}})
	ended := make(chan string, 1)
	go func() {
		out, _ := try(t, s, "user", `python3 -c '
import socket
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT there.example:80 HTTP/1.1\r\nHost: there.example:80\r\n\r\n")
data = b""
while True:
    more = s.recv(4096)
    if not more: break
    data += more
    if data.endswith(b"data"): s.sendall(b"got")
print(data.decode().split()[1], "ended")
'`)
		ended <- out
	}()
	conn := <-accepted
	defer conn.Close()
	if _, err := conn.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("got"))); err != nil { // it is through
		t.Fatal(err)
	}
	s.SetEgress(toServer{closed: true})
	if got := <-ended; got != "200 ended" {
		t.Errorf("got %q, want a connection that ended", got)
	}
}
