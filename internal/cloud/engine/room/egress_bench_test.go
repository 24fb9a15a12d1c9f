//go:build linux

package room

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// BenchmarkEgress compares the cost of the egress path for a program with the
// cost on the host. The client and the server are the same.
func BenchmarkEgress(b *testing.B) {
	const size = 256 << 20
	chunk := make([]byte, 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			for range size / len(chunk) {
				_, _ = w.Write(chunk)
			}
			return
		}
		_, _ = io.WriteString(w, "x")
	}))
	defer server.Close()
	to := server.Listener.Addr().(*net.TCPAddr)
	s := newSandbox(b, transparentRoom(b), engine.SandboxOptions{Egress: &testEgress{connect: func(ctx context.Context, _ *net.TCPConn) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	}}})
	paths := []struct {
		name, address string
		run           func(command string) string
	}{
		{"direct", to.String(), func(command string) string {
			out, err := exec.CommandContext(b.Context(), "/bin/sh", "-c", command).CombinedOutput()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}},
		{"transparent", fmt.Sprintf("203.0.113.1:%d", to.Port), func(command string) string { return sh(b, s, command).Output }},
	}
	for _, path := range paths {
		host, port, _ := net.SplitHostPort(path.address)
		b.Run("connect/"+path.name, func(b *testing.B) {
			code := fmt.Sprintf(`import socket, time
took = []
for _ in range(%d):
    began = time.perf_counter()
    s = socket.create_connection(("%s", %s))
    connected = time.perf_counter()
    s.sendall(b"GET / HTTP/1.0\r\n\r\n"); s.recv(4096)
    took.append((connected - began, time.perf_counter() - began)); s.close()
took = sorted(took); print(took[len(took) // 2][0] * 1e6, sorted(t[1] for t in took)[len(took) // 2] * 1e6)`, max(b.N, 10), host, port)
			fields := strings.Fields(path.run("python3 -c '" + code + "'"))
			if len(fields) != 2 {
				b.Fatal(fields)
			}
			for i, unit := range []string{"us-median-connect", "us-median-request"} {
				value, err := strconv.ParseFloat(fields[i], 64)
				must.Do(b, err)
				b.ReportMetric(value, unit)
			}
		})
		b.Run("download/"+path.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if out := path.run("curl -sS -o /dev/null -w '%{size_download}' http://" + path.address + "/large"); out != strconv.Itoa(size) {
					b.Fatal(out)
				}
			}
		})
	}
}

// BenchmarkWay measures how much longer a sandbox takes to start with an egress
// path.
func BenchmarkWay(b *testing.B) {
	for _, w := range []wire.EgressPath{wire.EgressNone, wire.EgressBuild} {
		b.Run("egress="+string(w), func(b *testing.B) {
			r := transparentRoom(b)
			r.egressPath = w
			for b.Loop() {
				s, err := r.NewSandbox(b.Context(), engine.SandboxOptions{ID: "bench"})
				must.Do(b, err)
				b.StopTimer()
				must.Do(b, s.Close())
				b.StartTimer()
			}
		})
	}
}
