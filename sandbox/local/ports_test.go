//go:build linux

package local_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// listen starts a Python program in the background that says "ready" once it
// listens, and waits for that.
func listen(t *testing.T, sb *sandbox.Sandbox, name, program string) {
	t.Helper()
	must.Do(t, sb.Files.Write(t.Context(), name, []byte(program), nil))
	// Each program has a pipe of its own: the command ends when the first line has come.
	if got := sandboxtest.Run(t, sb, "mkfifo "+name+".ready; (setsid python3 "+name+" >"+name+".ready 2>"+name+".log </dev/null &); head -n 1 "+name+".ready"); got != "ready" {
		t.Fatalf("%s: %q, %s", name, got, sandboxtest.Run(t, sb, "cat "+name+".log"))
	}
}

// webServer answers with the request that it received, on the given address and port.
const webServer = `
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://example.com/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        names = ("X-Access-Token", "E2b-Traffic-Access-Token", "User-Agent")
        body = "\n".join([self.path, self.headers["Host"]] + [str(self.headers[n]) for n in names]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = Server((ADDRESS, PORT), Handler)
print("ready", flush=True)
server.serve_forever()
`

func webServerAt(address string, port int) string {
	return fmt.Sprintf("ADDRESS, PORT = %q, %d\n", address, port) + webServer
}

// TestTransport checks that servers on any address inside are reached, however the
// port is named, and that they do not see the daemon's token.
func TestTransport(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t, sandbox.WithPrivateTraffic())
	if cloud.Isolation() == "full" {
		listen(t, sb, "all.py", webServerAt("0.0.0.0", 3000))
		listen(t, sb, "six.py", webServerAt("::1", 3001))
	}
	listen(t, sb, "loop.py", webServerAt("127.0.0.1", 3002))
	for port, base := range map[int]string{3000: "http://localhost:3000", 3001: sb.URL(3001), 3002: "http://127.0.0.1:3002"} {
		if cloud.Isolation() != "full" && port != 3002 {
			continue
		}
		client := &http.Client{Transport: sb.Transport(port)}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/a%2Fb?c", nil)
		r.Header.Set("User-Agent", "mine")
		response, err := client.Do(r)
		must.Do(t, err)
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		lines := strings.Split(string(body), "\n")
		if err != nil || len(lines) != 5 {
			t.Fatalf("port %d: %q, %v, want five lines", port, body, err)
		}
		if diff := cmp.Diff([]string{"/a%2Fb?c", lines[1], "None", lines[3], "mine"}, lines); diff != "" || len(lines[3]) != 64 {
			t.Errorf("port %d, with a traffic token of %d characters, want 64 (-want +got):\n%s", port, len(lines[3]), diff)
		}
		r, _ = http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/away", nil)
		if _, err := client.Do(r); err == nil || !strings.Contains(err.Error(), "does not carry requests to example.com") {
			t.Errorf("port %d: a redirect was followed: %v", port, err)
		}
	}
	get := func(base string) error {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base, nil)
		response, err := (&http.Client{Transport: sb.Transport(4000)}).Do(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	if err := get("http://localhost:4000"); !errors.Is(err, sandbox.ErrPortClosed) || !strings.Contains(err.Error(), "port 4000") {
		t.Errorf("closed port: %v", err)
	}
	if u, err := url.Parse(sb.URL(3000)); err != nil || u.Scheme != "http" || u.Host != sb.Host(3000) {
		t.Errorf("URL %q, %v", sb.URL(3000), err)
	}
	must.Do(t, sb.Kill(t.Context()))
	if err := get("http://localhost:4000"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("gone: %v", err)
	}
	must.Do(t, sb.Close())
	if err := get("http://localhost:4000"); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// tlsServer answers over TLS with the Host under which it was called.
const tlsServer = `
import http.server, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (self.headers["Host"] + " " + self.headers["X-Forwarded-Host"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("tls.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
`

// TestNetworkOptions checks that the network part of a create request takes effect at
// the ports: TLS where it says so, with an unknown certificate, and a Host of its choice.
func TestNetworkOptions(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t, sandbox.WithHTTPSPorts(8443), sandbox.WithRequestHost("app.example.com:${PORT}"))
	must.Do(t, sb.Files.Write(t.Context(), "tls.pem", selfSigned(t), nil))
	listen(t, sb, "tls.py", tlsServer)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.URL(8443), nil)
	response, err := sb.Transport(8443).RoundTrip(r)
	must.Do(t, err)
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "app.example.com:8443 "+strings.TrimPrefix(cloud.URL(), "http://") {
		t.Errorf("%q, %v", body, err)
	}
}

// selfSigned returns a key and a certificate signed with it.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Do(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Do(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})...)
}

// TestDialWebsocket checks that the kernels' own endpoint is a websocket like any other.
func TestDialWebsocket(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	_, response, err := sb.DialWebsocket(t.Context(), 8888, "/api/kernels/none/channels", nil)
	if !errors.Is(err, websocket.ErrBadHandshake) || response == nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("no kernel: %v, %v", response, err)
	}
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Path != "/api/kernels/none/channels" || !strings.Contains(refused.Message, "Kernel does not exist") || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("no kernel: got %v, want the reason from the answer", err)
	}
	if _, _, err := sb.DialWebsocket(t.Context(), 4000, "", nil); !errors.Is(err, sandbox.ErrPortClosed) {
		t.Errorf("closed port: %v", err)
	}
	listen(t, sb, "ws.py", websocketServer)
	conn, _, err := sb.DialWebsocket(t.Context(), 3000, "/", nil)
	must.Do(t, err)
	defer conn.Close()
	if _, message, err := conn.ReadMessage(); string(message) != "hello" {
		t.Errorf("%q, %v", message, err)
	}
	conn.Close()

	// Other websocket clients upgrade through the transport.
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:3000/", nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="}, "Sec-Websocket-Version": {"13"}}
	response, err = sb.Transport(3000).RoundTrip(r)
	must.Do(t, err)
	defer response.Body.Close()
	socket, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("%s, %T", response.Status, response.Body)
	}
	frame := make([]byte, 7)
	if _, err := io.ReadFull(socket, frame); string(frame) != "\x81\x05hello" {
		t.Errorf("%q, %v", frame, err)
	}
	if _, err := socket.Write([]byte("x")); err != nil {
		t.Error(err)
	}
}

// TestTooManyConnections checks that connections to a port of a program, opened by anybody who
// knows the sandbox, do not keep its owner out: the next one is refused by name, the sandbox's
// log says so, and there is room when they are closed.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	listen(t, sb, "many.py", manyWebsockets)
	const most = 1000
	conns := make([]*websocket.Conn, most)
	for i := range conns {
		conn, _, err := sb.DialWebsocket(t.Context(), 3000, "/", nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	_, response, err := sb.DialWebsocket(t.Context(), 3000, "/x?secret=1", nil)
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.StatusCode != http.StatusTooManyRequests || !errors.Is(err, websocket.ErrBadHandshake) || response == nil {
		t.Fatalf("one more: got %v, %v", response, err)
	}
	if text := err.Error(); !strings.Contains(text, "429: The sandbox has too many open connections") || strings.Contains(text, "secret") {
		t.Errorf("one more: got %v", err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), `"connectionLimit":1000`) {
		t.Errorf("one more: got %s, %v", body, err)
	}
	logged := false
	for entry, err := range sb.Logs(t.Context(), nil) {
		must.Do(t, err)
		logged = logged || strings.Contains(fmt.Sprint(entry), "too many connections") && strings.Contains(fmt.Sprint(entry), "3000")
	}
	if !logged {
		t.Error("the sandbox's log does not say it")
	}
	if got := sandboxtest.Run(t, sb, "echo hello"); got != "hello" {
		t.Errorf("a command: got %q", got)
	}
	if err := sb.Files.Write(t.Context(), "some.txt", []byte("hello"), nil); err != nil {
		t.Error(err)
	}
	if execution, err := sb.RunCode(t.Context(), "6*7", nil); err != nil || execution.Text() != "42" {
		t.Errorf("code: got %v, %v", execution, err)
	}
	for _, conn := range conns {
		conn.Close()
	}
	patience.Until(t, "there is room again", func() bool {
		conn, _, err := sb.DialWebsocket(t.Context(), 3000, "/", nil)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// manyWebsockets keeps many websockets at once, in four processes.
const manyWebsockets = `
import asyncio, base64, hashlib, os, socket
async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    key = [l.split(": ")[1] for l in head.split("\r\n") if l.lower().startswith("sec-websocket-key")][0]
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    writer.write(f"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
    await reader.read()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, sock=listener)
    await server.serve_forever()
listener = socket.create_server(("127.0.0.1", 3000), backlog=1024)
print("ready", flush=True)
for _ in range(3):
    if not os.fork(): break
asyncio.run(main())
`

// websocketServer accepts websockets, one after another, and says hello.
const websocketServer = `
import base64, hashlib, socket
s = socket.create_server(("127.0.0.1", 3000))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    head = b""
    while b"\r\n\r\n" not in head:
        head += c.recv(4096)
    key = [l.split(b":")[1].strip() for l in head.split(b"\r\n") if l.lower().startswith(b"sec-websocket-key:")][0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello")
    c.recv(1)
`

// rawServer repeats what it receives on 3000 and closes when it receives a line "end";
// on 3001 it sends without end and reads nothing.
const rawServer = `
import socket, threading
def echo(c):
    with c:
        tail = b""
        while data := c.recv(65536):
            c.sendall(data)
            tail = (tail + data)[-4:]
            if tail == b"end\n": return
def talk(c):
    with c:
        try:
            while True: c.sendall(b"x" * 65536)
        except OSError: pass
        open("talked", "w").close()
def serve(port, handle):
    s = socket.create_server(("127.0.0.1", port))
    def loop():
        while True: threading.Thread(target=handle, args=(s.accept()[0],), daemon=True).start()
    return loop
loops = [serve(3000, echo), serve(3001, talk)]
print("ready", flush=True)
for l in loops: threading.Thread(target=l).start()
`

func TestDial(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	listen(t, sb, "raw.py", rawServer)
	dial := func(port int) net.Conn {
		t.Helper()
		conn, err := sb.Dial(t.Context(), port)
		must.Do(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}

	conn := dial(3000)
	want := make([]byte, 1<<20)
	_, _ = rand.Read(want)
	copy(want[len(want)-4:], "end\n")
	go func() { _, _ = conn.Write(want) }()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after the end: %v", err)
	}

	conn = dial(3000)
	must.Do(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	_, _ = io.WriteString(conn, "still\n")
	if got := make([]byte, 6); true {
		if _, err := io.ReadFull(conn, got); string(got) != "still\n" {
			t.Errorf("%q, %v", got, err)
		}
	}

	// Closing ends the relay, although the server sends and nothing reads.
	talker := dial(3001)
	must.Do(t, talker.Close())
	if _, err := talker.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read after Close: %v", err)
	}
	for range 20 { // all at once, while the relay gets ready
		must.Do(t, dial(3001).Close())
	}
	_ = conn.Close()
	sandboxtest.Run(t, sb, `for i in $(seq 200); do test -e talked && ! grep -qx cat /proc/[0-9]*/comm && exit; sleep 0.1; done; grep -ax cat /proc/[0-9]*/comm; exit 1`)
	conn = dial(3000)

	if _, err := sb.Dial(t.Context(), 4000); !errors.Is(err, sandbox.ErrPortClosed) {
		t.Errorf("closed port: %v", err)
	}
	if _, err := sb.Dial(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "0 is not a port") {
		t.Errorf("port 0: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sb.Dial(ctx, 3000); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}

	// It is a connection like any other: HTTP works over it, for instance.
	listen(t, sb, "loop.py", webServerAt("127.0.0.1", 3002))
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return sb.Dial(ctx, 3002) }}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://inside/x", nil)
	response, err := transport.RoundTrip(r)
	must.Do(t, err)
	if body, err := io.ReadAll(response.Body); !strings.HasPrefix(string(body), "/x\ninside\n") {
		t.Errorf("%q, %v", body, err)
	}
	_ = response.Body.Close()
	transport.CloseIdleConnections()

	// It ends with the handle, and with the sandbox.
	other, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option())
	must.Do(t, err)
	defer other.Close()
	orphan, err := other.Dial(t.Context(), 3000)
	must.Do(t, err)
	defer orphan.Close()
	must.Do(t, sb.Close())
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("read after the handle's Close: %v", err)
	}
	if _, err := orphan.Read(make([]byte, 1)); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("read after the sandbox's end: %v", err)
	}
}
