//go:build linux

package e2e

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// webServer shows a request, sets a cookie, redirects, streams until it is told to end, and
// answers a websocket's handshake and one frame.
const webServer = `
import base64, hashlib, http.server, threading
go_on = threading.Event()
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def begin(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
    def text(self, status, text, **headers):
        self.begin(status, Content_Length=str(len(text)), **headers)
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        if self.path == "/ws":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.begin(101, Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Accept=base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.wfile.write(b"\x81\x02hi")
            self.close_connection = True
        elif self.path == "/stream":
            go_on.clear()
            self.begin(200, Connection="close")
            self.end_headers()
            self.wfile.write(b"first\n")
            self.wfile.flush()
            go_on.wait(60)
            self.wfile.write(b"second\n")
            self.close_connection = True
        elif self.path == "/go":
            go_on.set()
            self.text(200, "")
        elif self.path == "/inside":
            self.text(302, "", Location="http://localhost:8000/done?x=1")
        elif self.path == "/outside":
            self.text(302, "", Location="http://" + self.headers["Host"] + "/done")
        elif self.path == "/away":
            self.text(302, "", Location="https://example.com/x")
        else:
            self.text(200, self.path + "\n" + str(self.headers), Set_Cookie="seen=1; Path=/")
http.server.ThreadingHTTPServer(("", 8000), H).serve_forever()
`

func TestHandler(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t, sandbox.WithPrivateTraffic())
	if _, err := sb.Commands.Start(t.Context(), "exec python3 -c "+sandbox.Quote(webServer), nil); err != nil {
		t.Fatal(err)
	}
	must.Do(t, sb.WaitPort(t.Context(), 8000))
	front := httptest.NewServer(sb.Handler(8000))
	defer front.Close()
	jar, err := cookiejar.New(nil)
	must.Do(t, err)
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path string) *http.Response {
		t.Helper()
		response, err := client.Get(front.URL + path)
		must.Do(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	text := func(response *http.Response) string {
		t.Helper()
		body, err := io.ReadAll(response.Body)
		must.Do(t, err)
		return string(body)
	}
	text(get("/first"))
	if got := text(get("/a%2Fb?x=1;y=%zz")); !strings.HasPrefix(got, "/a%2Fb?x=1;y=%zz\n") || !strings.Contains(got, "Cookie: seen=1") || !strings.Contains(got, "X-Forwarded-For: 127.0.0.1") {
		t.Errorf("the server saw %q, want path and query as they were, the cookie and the client", got)
	}
	for path, want := range map[string]string{"/inside": "/done?x=1", "/outside": "/done", "/away": "https://example.com/x"} {
		if got := get(path).Header.Get("Location"); got != want {
			t.Errorf("%s redirects to %q, want %q", path, got, want)
		}
	}

	// The first line arrives before the second one is written.
	stream := bufio.NewReader(get("/stream").Body)
	if line, err := stream.ReadString('\n'); err != nil || line != "first\n" {
		t.Errorf("stream: %q, %v, want its first line", line, err)
	}
	text(get("/go"))
	if line, err := stream.ReadString('\n'); err != nil || line != "second\n" {
		t.Errorf("stream: %q, %v, want its second line", line, err)
	}

	socket, response, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(front.URL, "http")+"/ws", nil)
	if err != nil {
		t.Fatalf("a websocket: %v, %+v", err, response)
	}
	defer socket.Close()
	if _, message, err := socket.ReadMessage(); err != nil || string(message) != "hi" {
		t.Errorf("a websocket's message: %q, %v, want %q", message, err, "hi")
	}

	// The handler's own answers contain nothing about the sandbox.
	closed := httptest.NewServer(sb.Handler(8001))
	defer closed.Close()
	check := func(what, address, want string) {
		t.Helper()
		response, err := client.Get(address)
		must.Do(t, err)
		defer response.Body.Close()
		got := text(response)
		if response.StatusCode != http.StatusBadGateway || got != want+"\n" {
			t.Errorf("%s: %s, %q, want status 502 and %q", what, response.Status, got, want)
		}
	}
	check("a closed port", closed.URL, "Nothing listens on port 8001 of the sandbox.")
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	check("a closed handle", front.URL, "The sandbox does not answer.")
}
