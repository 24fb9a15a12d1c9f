package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	id      = "iaaaabbbbccccddddeeee"
	otherID = "izzzzyyyyxxxxwwwwvvvv"
	token   = "0123456789abcdef"
	traffic = "feedface"
)

// cloud is a router that serves on a real listener.
type cloud struct {
	*Router
	url string
}

func start(t *testing.T) *cloud {
	t.Helper()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "api "+r.URL.Path) })
	rt := New(Options{API: api, Domain: "cloud.test:4000"})
	rt.pauses = []time.Duration{time.Millisecond}
	server := httptest.NewUnstartedServer(rt)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		closeServer(t, server)
		settled(t, rt)
	})
	return &cloud{rt, server.URL}
}

// closeServer closes a server. In a test that failed, it does not wait for the requests.
func closeServer(t *testing.T, server *httptest.Server) {
	t.Helper()
	if t.Failed() {
		server.CloseClientConnections()
	}
	server.Close()
}

// serve returns a function that connects to real servers, by port. Ports without a server are
// closed.
func serve(t *testing.T, ports map[int]http.HandlerFunc) func(context.Context, int) (net.Conn, error) {
	t.Helper()
	addresses := map[int]string{}
	for port, h := range ports {
		server := httptest.NewServer(h)
		t.Cleanup(func() { closeServer(t, server) })
		addresses[port] = server.Listener.Addr().String()
	}
	return func(ctx context.Context, port int) (net.Conn, error) {
		address, ok := addresses[port]
		if !ok {
			return nil, fmt.Errorf("fake: %w", ErrPortClosed)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}

type ask struct {
	method, path, host string
	header             map[string]string
	body               io.Reader
}

func (c *cloud) do(t *testing.T, a ask) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(patience.Context(t), a.method, c.url+a.path, a.body)
	must.Do(t, err)
	if a.host != "" {
		r.Host = a.host
	}
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp, string(body)
}

func by(id, port string) map[string]string {
	return map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": port}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	c := start(t)
	say := func(what string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, what+" "+r.Host) }
	}
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{49983: say("envd"), 3000: say("user")})})
	c.Add(Sandbox{ID: otherID, TrafficToken: traffic, Dial: serve(t, map[int]http.HandlerFunc{49983: say("envd"), 3000: say("user")})})
	withToken := func(value string) map[string]string {
		h := by(otherID, "3000")
		h["e2b-traffic-access-token"] = value
		return h
	}
	const jsonType, textType = "application/json; charset=utf-8", "text/plain; charset=utf-8"
	closed := func(port int) string {
		return fmt.Sprintf(`{"sandboxId":"%s","message":"The sandbox is running but port is not open","port":%d,"code":502}`, id, port)
	}
	notFound := func(id string) string {
		return `{"sandboxId":"` + id + `","message":"The sandbox was not found","code":502}`
	}
	tests := []struct {
		name string
		ask
		status int
		kind   string
		body   string
	}{
		{"headers on an IP", ask{header: by(id, "3000")}, 200, textType, "user 127.0.0.1"},
		{"headers on localhost", ask{host: "localhost", header: by(id, "49983")}, 200, textType, "envd localhost"},
		{"headers on IPv6", ask{host: "[::1]:3000", header: by(id, "3000")}, 200, textType, "user [::1]:3000"},
		{"headers on sandbox.domain", ask{host: "sandbox.cloud.test", header: by(id, "3000")}, 200, textType, "user sandbox.cloud.test"},
		{"host", ask{host: "3000-" + id + ".cloud.test:4000"}, 200, textType, "user 3000-" + id + ".cloud.test:4000"},
		{"host on any domain", ask{host: "3000-" + id + ".localhost"}, 200, textType, "user 3000-" + id + ".localhost"},
		{"host with client id", ask{host: "3000-" + id + "-6532622b.x.y"}, 200, textType, "user 3000-" + id + "-6532622b.x.y"},
		{"host wins over headers", ask{host: "3000-" + id + ".x.y", header: by(otherID, "49983")}, 200, textType, "user 3000-" + id + ".x.y"},
		{"only the id header", ask{header: map[string]string{"E2b-Sandbox-Id": id}}, 400, textType, "missing header\n"},
		{"only the port header", ask{header: map[string]string{"E2b-Sandbox-Port": "1"}}, 400, textType, "missing header\n"},
		{"bad id", ask{header: by("I_1", "3000")}, 400, textType, "Invalid sandbox ID\n"},
		{"bad id in host", ask{host: "3000-_.x"}, 400, textType, "Invalid sandbox ID\n"},
		{"no id in host", ask{host: "3000-.x"}, 400, textType, "Invalid sandbox ID\n"},
		{"bad port", ask{header: by(id, "http")}, 400, textType, "Invalid sandbox port\n"},
		{"negative port", ask{header: by(id, "-1")}, 400, textType, "Invalid sandbox port\n"},
		{"port 0", ask{header: by(id, "0")}, 502, jsonType, closed(0)},
		{"port 0 in host", ask{host: "0-" + id + ".x"}, 502, jsonType, closed(0)},
		{"port too large", ask{header: by(id, "70000")}, 502, jsonType, closed(70000)},
		{"port 0 of an unknown sandbox", ask{header: by("inobody", "0")}, 502, jsonType, notFound("inobody")},
		{"no dash below the domain", ask{host: "foo.cloud.test"}, 400, textType, "Invalid host\n"},
		{"sandbox host without headers", ask{host: "sandbox.cloud.test"}, 400, textType, "Invalid host\n"},
		{"unknown", ask{header: by("inobody", "3000")}, 502, jsonType, notFound("inobody")},
		{"unknown, health", ask{path: "/health", header: by("inobody", "49983")}, 502, jsonType, notFound("inobody")},
		{"port closed", ask{header: by(id, "3001")}, 502, jsonType, closed(3001)},
		{"reserved", ask{method: "POST", path: "/init", header: by(id, "49983")}, 404, jsonType,
			`{"message":"This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL","path":"/init","code":404}`},
		{"reserved, unclean, unknown sandbox", ask{path: "/x/..//fsthaw", header: by("inobody", "49983")}, 404, jsonType,
			`{"message":"This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL","path":"/x/..//fsthaw","code":404}`},
		{"not reserved on user ports", ask{path: "/init", header: by(id, "3000")}, 200, textType, "user 127.0.0.1"},
		{"traffic token missing", ask{header: by(otherID, "3000")}, 403, jsonType,
			`{"sandboxId":"` + otherID + `","message":"Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing","code":403}`},
		{"traffic token wrong", ask{header: withToken("nope")}, 403, jsonType,
			`{"sandboxId":"` + otherID + `","message":"Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid","code":403}`},
		{"traffic token right", ask{header: withToken(traffic)}, 200, textType, "user 127.0.0.1"},
		{"no traffic token on the daemon", ask{header: by(otherID, "49983")}, 200, textType, "envd 127.0.0.1"},
		{"api on an IP", ask{path: "/sandboxes"}, 200, textType, "api /sandboxes"},
		{"api on the domain", ask{host: "cloud.test", path: "/a"}, 200, textType, "api /a"},
		{"api on api.domain", ask{host: "API.cloud.test.:4000", path: "/a"}, 200, textType, "api /a"},
		{"foreign host", ask{host: "evil.example", path: "/sandboxes"}, 421, jsonType,
			`{"code":421,"message":"this host is not served here: use localhost or an IP address; e2bctl serve --host NAME serves further names"}`},
		{"foreign host with headers", ask{host: "evil.example", header: by(id, "3000")}, 421, jsonType,
			`{"code":421,"message":"this host is not served here: use localhost or an IP address; e2bctl serve --host NAME serves further names"}`},
		{"another domain's sandbox host with headers", ask{host: "sandbox.evil.example", header: by(id, "3000")}, 421, jsonType,
			`{"code":421,"message":"this host is not served here: use localhost or an IP address; e2bctl serve --host NAME serves further names"}`},
		{"another domain's sandbox host with a signature", ask{host: "sandbox.evil.example", path: "/files?path=/tmp/b.txt&signature=v1_x"}, 421, jsonType,
			`{"code":421,"message":"this host is not served here: use localhost or an IP address; e2bctl serve --host NAME serves further names"}`},
		{"any method", ask{method: "PATCH", path: "/", header: by(id, "3000")}, 200, textType, "user 127.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.method == "" {
				tt.method = "GET"
			}
			resp, body := c.do(t, tt.ask)
			body = strings.ReplaceAll(body, strings.TrimPrefix(c.url, "http://"), "127.0.0.1")
			if resp.StatusCode != tt.status || body != tt.body || resp.Header.Get("Content-Type") != tt.kind {
				t.Errorf("got %d %s %q, want %d %s %q", resp.StatusCode, resp.Header.Get("Content-Type"), body, tt.status, tt.kind, tt.body)
			}
		})
	}
}

func TestRequestIsCarriedUnchanged(t *testing.T) {
	t.Parallel()
	c := start(t)
	var got *http.Request
	c.Add(Sandbox{ID: id, MaskHost: "app.test:${PORT}", Dial: serve(t, map[int]http.HandlerFunc{
		49983: func(_ http.ResponseWriter, r *http.Request) { got = r },
		3000:  func(_ http.ResponseWriter, r *http.Request) { got = r },
	})})
	header := by(id, "49983")
	header["X-Forwarded-For"] = "192.0.2.7"
	header["User-Agent"] = ""
	c.do(t, ask{method: "GET", path: "/a%2Fb//c?x=1;2&y=%zz", host: "localhost", header: header})
	want := http.Header{"E2b-Sandbox-Id": {id}, "E2b-Sandbox-Port": {"49983"}, "X-Forwarded-For": {"192.0.2.7"}, "Accept-Encoding": {"gzip"}}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if got.RequestURI != "/a%2Fb//c?x=1;2&y=%zz" || got.Host != "localhost" {
		t.Errorf("got %q on %q, want %q on %q", got.RequestURI, got.Host, "/a%2Fb//c?x=1;2&y=%zz", "localhost")
	}

	c.do(t, ask{method: "GET", path: "/", host: "localhost", header: by(id, "3000")})
	if got.Host != "app.test:3000" || got.Header.Get("X-Forwarded-Host") != "localhost" {
		t.Errorf(`masked: Host %q, X-Forwarded-Host %q, want %q, %q`, got.Host, got.Header.Get("X-Forwarded-Host"), "app.test:3000", "localhost")
	}
}

func TestAnswersStream(t *testing.T) {
	t.Parallel()
	c := start(t)
	more := make(chan struct{})
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{49999: func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "two\n")
	}})})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", c.url, nil)
	for name, value := range by(id, "49999") {
		r.Header.Set(name, value)
	}
	resp, err := clienttest.New(t).Transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "one\n" {
		t.Fatalf("got %q, %v, want %q", line, err, "one\n")
	}
	close(more)
	if line, err := body.ReadString('\n'); line != "two\n" {
		t.Fatalf("got %q, %v, want %q", line, err, "two\n")
	}
}

// TestConversation checks that an answer may begin, and can be read, while the request is still
// being sent.
func TestConversation(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{49983: func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		_, _ = io.Copy(flusher{w, rc}, r.Body)
	}})})
	messages := []string{"one\n", "two\n", "three\n"}
	for _, length := range []int64{-1, int64(len(strings.Join(messages, "")))} {
		up, send := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", c.url, up)
		r.ContentLength = length
		for name, value := range by(id, "49983") {
			r.Header.Set(name, value)
		}
		transport := &http.Transport{}
		resp, err := transport.RoundTrip(r)
		must.Do(t, err)
		body := bufio.NewReader(resp.Body)
		for _, want := range messages {
			_, _ = io.WriteString(send, want)
			if line, err := body.ReadString('\n'); line != want {
				t.Fatalf("length %d: %q, %v, want %q", length, line, err, want)
			}
		}
		_ = send.Close()
		if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
			t.Fatalf("length %d: %q, %v, want no rest and no error", length, rest, err)
		}
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
	}
}

type flusher struct {
	io.Writer
	rc *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	return n, errors.Join(err, f.rc.Flush())
}

func TestWebsocket(t *testing.T) {
	t.Parallel()
	c := start(t)
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{8888: func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, message) != nil {
				return
			}
		}
	}})})
	header := http.Header{}
	for name, value := range by(id, "8888") {
		header.Set(name, value)
	}
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(c.url, "http"), header)
	must.Do(t, err)
	defer conn.Close()
	want := make([]byte, 1<<20)
	_, _ = rand.Read(want)
	must.Do(t, conn.WriteMessage(websocket.BinaryMessage, want))
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != string(want) {
		t.Fatalf("got %d bytes, %v, want the %d that were sent", len(got), err, len(want))
	}
}

// TestUpgradeEndsWithSandbox checks that an upgraded connection ends when its sandbox ends or is
// paused, at once and on both sides. This must be true even if neither side has ended its half, or
// only the program inside has.
func TestUpgradeEndsWithSandbox(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*cloud){"end": func(c *cloud) { c.Remove(id) }, "pause": func(c *cloud) { c.Pause(id) }} {
		for _, half := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, half of it ended before: %v", name, half), func(t *testing.T) {
				t.Parallel()
				c := start(t)
				inside := make(chan net.Conn, 1)
				c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{8888: func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: mine\r\n\r\n")
					inside <- conn
				}})})
				u := c.lookup(id)
				outside := c.dial(t)
				fmt.Fprintf(outside, "GET / HTTP/1.1\r\nHost: 8888-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: mine\r\n\r\n", id)
				in := bufio.NewReader(outside)
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("got %v, %v, want status 101", resp, err)
				}
				server := <-inside
				defer server.Close()
				must.Do(t, server.SetDeadline(patience.Deadline()))
				if half {
					err := server.(*net.TCPConn).CloseWrite()
					if rest, readErr := io.ReadAll(in); err != nil || readErr != nil || len(rest) > 0 {
						t.Fatalf("got %q, %v, %v, want that the client learns of the end of one half", rest, err, readErr)
					}
				}
				end(c)
				for side, from := range map[string]io.Reader{"client": in, "server": server} {
					_, err := io.Copy(io.Discard, from)
					if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
						t.Errorf("the connection of the %s stays open", side)
					}
				}
				answered(t, u)
			})
		}
	}
}

// TestWholeAnswers checks that an answer that ends with its connection counts as complete only if
// the sandbox continues to run.
func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func(*Router)
		want error
	}{
		"runs": {func(*Router) {}, io.EOF}, "ended": {func(rt *Router) { rt.Remove(id) }, io.ErrUnexpectedEOF}, "paused": {func(rt *Router) { rt.Pause(id) }, io.ErrUnexpectedEOF},
	} {
		rt := New(Options{})
		rt.Add(Sandbox{ID: id})
		u := rt.lookup(id)
		body := &endless{io.NopCloser(strings.NewReader("part")), &target{upstream: u, spell: u.spell()}}
		tt.end(rt)
		part := make([]byte, 8)
		if n, err := body.Read(part); string(part[:n]) != "part" || err != nil {
			t.Errorf("%s: got %q and error %v, want what was sent", name, part[:n], err)
		}
		if n, err := body.Read(part); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: got %d bytes and error %v at the end, want %v", name, n, err, tt.want)
		}
		rt.Remove(id)
	}
}

// TestSwitchesHTTP checks that every spelling of an offer to switch to another version of HTTP is
// recognised, and no offer of another protocol.
func TestSwitchesHTTP(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		upgrades []string
		want     bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"websocket"}, false},
		{[]string{"websocket", "h2c"}, true},
		{[]string{"websocket,h2c"}, true},
		{[]string{"websocket, h2c"}, true},
		{[]string{"h2c , websocket"}, true},
		{[]string{"\th2"}, true},
		{[]string{"H2C"}, true},
		{[]string{"HTTP/2.0"}, true},
		{[]string{"websocket, Http/3"}, true},
		{[]string{"h2cx", "xh2", "http", "x http/2"}, false},
	} {
		if got := switchesHTTP(tt.upgrades); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.upgrades, got, tt.want)
		}
	}
}

func TestSignedURL(t *testing.T) {
	t.Parallel()
	c := start(t)
	say := func(what string) map[int]http.HandlerFunc {
		return map[int]http.HandlerFunc{49983: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, what) }}
	}
	c.Add(Sandbox{ID: id, AccessToken: token, Dial: serve(t, say("first"))})
	c.Add(Sandbox{ID: otherID, AccessToken: "deadbeef", Dial: serve(t, say("second"))})
	c.Add(Sandbox{ID: "iopen", Dial: serve(t, say("open"))})
	tests := []struct {
		method, query string
		status        int
		body          string
	}{
		{"GET", "path=/tmp/b.txt&signature=v1_tIWP3Kx9pOTBydJr6NhK6AVCrVziGp6TQN4bHh/MDkE", 200, "second"},
		{"GET", "path=/tmp/b.txt&signature=v1_tIWP3Kx9pOTBydJr6NhK6AVCrVziGp6TQN4bHh/MDkE=", 200, "second"},
		{"OPTIONS", "path=/tmp/b.txt&signature=v1_tIWP3Kx9pOTBydJr6NhK6AVCrVziGp6TQN4bHh/MDkE", 200, "second"},
		{"POST", "path=/tmp/b.txt&signature=v1_tIWP3Kx9pOTBydJr6NhK6AVCrVziGp6TQN4bHh/MDkE", 502, `{"sandboxId":"","message":"The sandbox was not found","code":502}`},
		{"GET", "path=/home/user/a.txt&username=user&signature_expiration=1700000000&signature=v1_7tBnmImUz4OT9m/akKudyCkRsVT00BK8CtkP439xWzM", 200, "first"},
		{"POST", "path=/home/user/a.txt&signature=v1_xvlQ963AAcGfb56vmq3RqD2lnCrOttksvuQ%2BwdzvAuI", 200, "first"},
		{"POST", "signature=v1_vWy40L%2BF6t8a9aNkeq4zjDQBhkQmfGuV/zwviL9BRZk", 200, "first"},
		// Signed with the empty token, and with an expiration that is not a
		// number.
		{"GET", "path=/tmp/b.txt&signature=v1_Au/GlcPxLgSbO/bu777wD5WbYblvSC/GUM0%2B%2BA4dVqg", 502, `{"sandboxId":"","message":"The sandbox was not found","code":502}`},
		{"GET", "path=/tmp/b.txt&signature_expiration=111111111111111111111&signature=v1_MKE0KNQfVe9AeLA%2BkRzKIV4J2GNaErnow6268MJ7qt4", 502, `{"sandboxId":"","message":"The sandbox was not found","code":502}`},
	}
	for _, tt := range tests {
		resp, body := c.do(t, ask{method: tt.method, path: "/files?" + tt.query})
		if resp.StatusCode != tt.status || body != tt.body {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.query, resp.StatusCode, body, tt.status, tt.body)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	c := start(t)
	refuse := func(err error) func(context.Context, int) (net.Conn, error) {
		return func(context.Context, int) (net.Conn, error) { return nil, err }
	}
	c.Add(Sandbox{ID: "igone", Dial: refuse(ErrGone)})
	c.Add(Sandbox{ID: "ibusy", Dial: refuse(errors.New("no descriptor left"))})
	c.Add(Sandbox{ID: "icut", Dial: func(context.Context, int) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = far.Read(make([]byte, 1)); far.Close() }()
		return near, nil
	}})
	for id, want := range map[string]int{"igone": 502, "ibusy": 503, "icut": 503} {
		if resp, body := c.do(t, ask{method: "GET", header: by(id, "3000")}); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", id, resp.StatusCode, body, want)
		}
	}

	// A server that begins to listen a moment later can be reached.
	late := serve(t, map[int]http.HandlerFunc{3000: func(http.ResponseWriter, *http.Request) {}})
	attempts := 0
	c.Add(Sandbox{ID: "ilate", Dial: func(ctx context.Context, port int) (net.Conn, error) {
		if attempts++; attempts == 1 {
			return nil, ErrPortClosed
		}
		return late(ctx, port)
	}})
	if resp, _ := c.do(t, ask{method: "GET", header: by("ilate", "3000")}); resp.StatusCode != 200 {
		t.Errorf("late server: %d, want 200", resp.StatusCode)
	}

	// The sandbox is removed while a connection waits for a port.
	rt := New(Options{})
	rt.pauses = []time.Duration{time.Hour}
	asked := make(chan struct{})
	rt.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { close(asked); return nil, ErrPortClosed }})
	go func() { <-asked; rt.Remove(id) }()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
	for name, value := range by(id, "3000") {
		r.Header.Set(name, value)
	}
	rt.ServeHTTP(w, r)
	if w.Code != 502 || !strings.Contains(w.Body.String(), messageNotFound) {
		t.Errorf("removed while waiting: %d %s, want status 502 and %q in it", w.Code, w.Body, messageNotFound)
	}
}

func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(http.ResponseWriter, *http.Request) {}})})
	others := &c.lookup(id).admissions[toPrograms].inFlight
	others.Store(maxRequests)
	resp, body := c.do(t, ask{method: "GET", header: by(id, "3000")})
	if want := `{"sandboxId":"` + id + `","message":"The sandbox has too many open connections","connectionLimit":1000,"code":429}`; resp.StatusCode != 429 || body != want {
		t.Errorf("got %d %s, want status 429 and body %v", resp.StatusCode, body, want)
	}
	others.Add(-1)
	defer others.Add(1 - maxRequests) // the last request may still be counted
	if resp, _ = c.do(t, ask{method: "GET", header: by(id, "3000")}); resp.StatusCode != 200 {
		t.Errorf("below the bound: %d, want 200", resp.StatusCode)
	}
}

// TestClassesOfRequests checks that too many requests to ports of programs, or without the
// sandbox's token, do not keep out requests of the owner. Refused requests of one class share one
// log entry.
func TestClassesOfRequests(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := start(t)
	c.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	open, wait := make(chan struct{}), make(chan struct{})
	hold := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Access-Token") == "" {
			open <- struct{}{}
			<-wait
		}
	}
	c.Add(Sandbox{ID: id, AccessToken: "secret", Dial: serve(t, map[int]http.HandlerFunc{3000: hold, protocol.PortEnvd: hold, protocol.PortInterpreter: hold, protocol.PortJupyter: hold})})
	ports := []string{"49983", "49999", "8888"}
	var held sync.WaitGroup
	for i := range maxStrangers {
		held.Go(func() {
			if resp, body := c.do(t, ask{method: "GET", header: by(id, ports[i%len(ports)])}); resp.StatusCode != 200 {
				t.Errorf("a request without the token: got %d %s", resp.StatusCode, body)
			}
		})
		<-open
	}
	others := &c.lookup(id).admissions[toPrograms].inFlight
	defer others.Add(-maxRequests)
	others.Store(maxRequests)
	for _, port := range append(ports, "3000", "4000") {
		for range 2 {
			if resp, body := c.do(t, ask{method: "GET", header: by(id, port)}); resp.StatusCode != 429 {
				t.Errorf("one more to port %s: got %d %s, want 429", port, resp.StatusCode, body)
			}
		}
	}
	for _, port := range ports {
		header := by(id, port)
		header["X-Access-Token"] = "secret"
		if resp, body := c.do(t, ask{method: "GET", header: header}); resp.StatusCode != 200 {
			t.Errorf("with the token, to port %s: got %d %s, want 200", port, resp.StatusCode, body)
		}
	}
	close(wait)
	held.Wait()
	if got := strings.Count(log.String(), "too many connections"); got != 2 {
		t.Errorf("got %d lines, want one for each class:\n%s", got, &log)
	}
	for _, want := range []string{"port=49983", "port=3000", "sandbox=" + id, "32 requests are in flight", "1000 requests are in flight"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &log)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, host := range []string{"", ".", "localhost", "[::1]:80", "3000-" + id + ".x", "-.", "--.x", "sandbox.x", "1-a-b-c.d"} {
		f.Add(host, id, "3000")
		f.Add(host, "", "")
	}
	f.Fuzz(func(t *testing.T, host, sandbox, port string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Host = host
		r.Header.Set(protocol.HeaderSandboxID, sandbox)
		r.Header.Set(protocol.HeaderSandboxPort, port)
		to := find(r, "cloud.test")
		switch to.kind {
		case forSandbox:
			if to.id == "" || strings.ContainsFunc(to.id, notLowerAlphanumeric) {
				t.Errorf("got the id %q of %+v", to.id, to)
			}
			if to.port < 1 || to.port > 65535 {
				t.Errorf("got the port %d of %+v", to.port, to)
			}
		case refused:
			if to.status < 400 || to.reason == "" {
				t.Errorf("got %+v, want a refusal with a reason", to)
			}
		case forAPI:
			if h := hostname(host); !isIP(h) && !slices.Contains([]string{"localhost", "cloud.test", "api.cloud.test"}, h) {
				t.Errorf("the API is on %q", host)
			}
		case forSigned:
			t.Error("there is no signature")
		}
	})
}
