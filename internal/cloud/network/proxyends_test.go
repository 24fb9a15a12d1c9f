package network

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestAskHTTP checks each byte with which a proxy is asked for a connection, and that the bytes after its
// answer stay unread. The test runs before the parallel ones, whose proxies wait for the end of a
// connection.
func TestAskHTTP(t *testing.T) {
	for name, tt := range map[string]struct {
		user *url.Userinfo
		want string
	}{
		"without a login": {nil, ""},
		"with a login":    {url.UserPassword("me", "secret"), "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"},
	} {
		near, far := net.Pipe()
		got := make(chan string, 1)
		go func() {
			var asked bytes.Buffer
			_, _ = http.ReadRequest(bufio.NewReader(io.TeeReader(far, &asked)))
			got <- asked.String()
			_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\nof the server")
			_ = far.Close()
		}()
		must.Do(t, askHTTP(near, "a.test:443", tt.user))
		want := "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nUser-Agent: Go-http-client/1.1\r\n" + tt.want + "\r\n"
		if diff := cmp.Diff(want, <-got); diff != "" {
			t.Errorf("%s: asked of the proxy (-want +got):\n%s", name, diff)
		}
		if left, err := io.ReadAll(near); err != nil || string(left) != "of the server" {
			t.Errorf("%s: got %q, %v after the answer", name, left, err)
		}
		_ = near.Close()
	}
}

// gone is the connection of a client that receives nothing more.
type gone struct{ net.Conn }

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// hijacked is a response whose connection the handler may take over. The client has already sent early.
type hijacked struct {
	http.ResponseWriter

	conn  net.Conn
	early string
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(strings.NewReader(h.early)), bufio.NewWriter(h.conn)), nil
}

// TestTunnelNeedsItsClient checks that a tunnel carries nothing if the connection of its client cannot be
// taken over, or cannot be answered, and that the connection to the server is then closed.
func TestTunnelNeedsItsClient(t *testing.T) {
	t.Parallel()
	near, other := net.Pipe()
	defer other.Close()
	for name, tt := range map[string]struct {
		over   func(w http.ResponseWriter) http.ResponseWriter
		status int
	}{
		"HTTP/2": {func(w http.ResponseWriter) http.ResponseWriter { return w }, http.StatusHTTPVersionNotSupported},
		"a client that has gone": {func(w http.ResponseWriter) http.ResponseWriter {
			return hijacked{w, gone{near}, "early"}
		}, http.StatusOK}, // of a response that was not written
	} {
		outside, server := net.Pipe()
		p := NewProxy(func(context.Context, string, uint16) (net.Conn, error) { return outside, nil })
		received := make(chan string, 1)
		go func() {
			all, _ := io.ReadAll(server)
			received <- string(all)
		}()
		w := httptest.NewRecorder()
		p.ServeHTTP(tt.over(w), httptest.NewRequestWithContext(t.Context(), http.MethodConnect, "a.test:443", nil))
		if w.Code != tt.status || strings.Contains(w.Body.String(), "HTTP/1.1") != (tt.status != http.StatusOK) {
			t.Errorf("%s: got %d %q, want %d", name, w.Code, w.Body, tt.status)
		}
		if got := <-received; got != "" {
			t.Errorf("%s: the server received %q, want nothing", name, got)
		}
		must.Do(t, p.Close())
	}
}
