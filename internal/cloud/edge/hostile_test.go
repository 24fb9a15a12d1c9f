package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// hostile returns a function that connects to a hostile sandbox. On every connection the sandbox
// reads a request, answers with raw bytes, and reports all other bytes that it receives.
func hostile(t *testing.T, answer string) (dial func(context.Context, int) (net.Conn, error), heard <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	said := make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer)
				rest, _ := io.ReadAll(in)
				said <- string(rest)
			}()
		}
	}()
	return func(ctx context.Context, _ int) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	}, said
}

// TestConnectionIsNotGivenAway checks that a sandbox that answers with 101 does not get the
// client's connection, because it would then receive the next request to the API, including the
// key.
func TestConnectionIsNotGivenAway(t *testing.T) {
	t.Parallel()
	const secret = "X-Api-Key: e2b_secret"
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	tests := []struct{ name, header, answer string }{
		{"unasked", "", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n" + ok},
		{"unasked, named", "", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + ok},
		{"HTTP/2", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"},
		{"HTTP/2 among others", "Connection: Upgrade\r\nUpgrade: HTTP/2.0, h2c\r\n",
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: HTTP/2.0, h2c\r\n\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			dial, heard := hostile(t, tt.answer)
			c.Add(Sandbox{ID: id, Dial: dial})
			defer c.Remove(id)
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(c.url, "http://"))
			must.Do(t, err)
			defer conn.Close()
			must.Do(t, conn.SetDeadline(patience.Deadline()))
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 3000\r\n%s\r\n", id, tt.header)
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			must.Do(t, err)
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("got %s %q, %v, want status http.StatusServiceUnavailable and no error", res.Status, body, err)
			}
			fmt.Fprintf(conn, "GET /sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s\r\n\r\n", secret)
			rest, _ := io.ReadAll(in)
			if !bytes.HasSuffix(rest, []byte("api /sandboxes")) {
				t.Errorf("the API did not answer: %q", rest)
			}
			_ = conn.Close()
			if got := <-heard; got != "" {
				t.Errorf("the sandbox heard %q, want nothing", got)
			}
		})
	}
}

// TestHostileAnswers checks that any bytes from a sandbox become an answer or an error, and that
// both end only their own request.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, answer string
		status       int
	}{
		{"status below 100", "HTTP/1.1 042 No\r\nContent-Length: 0\r\n\r\n", http.StatusServiceUnavailable},
		{"status of no digits", "HTTP/1.1 -01 No\r\n\r\n", http.StatusServiceUnavailable},
		{"not HTTP", "SSH-2.0-OpenSSH\r\n", http.StatusServiceUnavailable},
		{"endless header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeader), http.StatusServiceUnavailable},
		{"many headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: 1\r\n", maxHeader), http.StatusServiceUnavailable},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\nhi", http.StatusServiceUnavailable},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", http.StatusServiceUnavailable},
		{"a second answer", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", http.StatusNoContent},
		{"announcements", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000) + "HTTP/1.1 204 No Content\r\n\r\n", http.StatusNoContent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			dial, _ := hostile(t, tt.answer)
			c.Add(Sandbox{ID: id, Dial: dial})
			defer c.Remove(id)
			for _, port := range []string{"3000", "49983"} {
				res, body := c.do(t, ask{header: by(id, port)})
				if res.StatusCode != tt.status || strings.Contains(body, "forged") {
					t.Errorf("port %s: %s %.100q", port, res.Status, body)
				}
			}
			if _, body := c.do(t, ask{path: "/sandboxes"}); body != "api /sandboxes" {
				t.Errorf("the API says %q, want %q", body, "api /sandboxes")
			}
		})
	}
}

// TestSmuggling checks that no interpretation of one request's bytes turns them into two requests
// inside.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	const inner = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	length := strconv.Itoa(len(inner))
	tests := []struct {
		name, header, body string
		status             int
	}{
		{"length and chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\n" + inner, 0},
		{"two lengths", "Content-Length: 0\r\nContent-Length: " + length, inner, 400},
		{"a list of lengths", "Content-Length: 0, " + length, inner, 400},
		{"signed length", "Content-Length: +0", inner, 400},
		{"unknown coding", "Transfer-Encoding: xchunked", inner, 501},
		{"two codings", "Transfer-Encoding: chunked, identity", inner, 501},
		{"two codings, two lines", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", inner, 501},
		{"space before the colon", "Transfer-Encoding : chunked", inner, 400},
		{"folded line", "X: y\r\n Transfer-Encoding: chunked", inner, 0},
		{"bare return", "X: y\rTransfer-Encoding: chunked", inner, 400},
		{"chunk too long for a number", "Transfer-Encoding: chunked", "fffffffffffffffff\r\n" + inner, 0},
		{"chunk without end of line", "Transfer-Encoding: chunked", "1\r\nxx\r\n0\r\n\r\n", 0},
		{"named hop by hop", "Connection: Content-Length\r\nContent-Length: " + length, inner, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var paths []string
			t.Cleanup(func() { // runs when the servers have ended
				if slices.ContainsFunc(paths, func(path string) bool { return path != "/outer" }) || len(paths) > 1 {
					t.Errorf("inside came %q", paths)
				}
			})
			c := start(t)
			c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				mu.Lock()
				defer mu.Unlock()
				paths = append(paths, r.URL.Path)
			}})})
			conn := c.dial(t)
			const last = "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
			fmt.Fprintf(conn, "POST /outer HTTP/1.1\r\nHost: 3000-%s.localhost\r\n%s\r\n\r\n%s"+last, id, tt.header, tt.body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if tt.status != 0 && (err != nil || resp.StatusCode != tt.status) {
				t.Errorf("%v, %v, want %d", resp, err, tt.status)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays open")
			}
		})
	}
}
