package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestHTTP2Client checks that the listener serves a client that begins HTTP/2 without TLS, as the
// cloud's listener does. The server inside receives HTTP/1.1, including trailers.
func TestHTTP2Client(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Proto, r.Method, body, r.Trailer.Get("X-Part"))
		w.Header().Set("X-Sum", "7")
		w.Header().Set(http.TrailerPrefix+"X-Late", "8")
	}})})
	transport := http2Transport()
	defer transport.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", c.url, io.MultiReader(strings.NewReader("body")))
	r.Host = "3000-" + id + ".localhost"
	r.Trailer = http.Header{"X-Part": {"six"}}
	resp, err := transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if want := "HTTP/1.1 POST body six"; err != nil || string(body) != want || resp.ProtoMajor != 2 {
		t.Errorf("got %s %q, %v, want HTTP/2, body %q and no error", resp.Proto, body, err, want)
	}
	if resp.Trailer.Get("X-Sum") != "7" || resp.Trailer.Get("X-Late") != "8" {
		t.Errorf(`trailers %v, want trailer "X-Sum" = %q and trailer "X-Late" = %q`, resp.Trailer, "7", "8")
	}
}

func http2Transport() *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// TestGRPC checks that gRPC calls, which stream in both directions and end with trailers, reach
// their server over HTTP/2, because a gRPC server does not support HTTP/1. They use TLS if the port
// is one of HTTPSPorts. Each call has its own connection, which ends with the call.
func TestGRPC(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		_, _ = io.Copy(flusher{w, rc}, r.Body)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(handler)
			ended := make(chan struct{}, 16)
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					ended <- struct{}{}
				}
			}
			server.Config.Protocols = new(http.Protocols)
			sb := Sandbox{ID: id, Dial: func(ctx context.Context, _ int) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
			}}
			if secure {
				sb.HTTPSPorts = []int{5000}
				server.EnableHTTP2 = true
				server.Config.Protocols.SetHTTP2(true)
				server.StartTLS()
			} else {
				server.Config.Protocols.SetUnencryptedHTTP2(true)
				server.Start()
			}
			defer server.Close()
			c := start(t)
			c.Add(sb)
			transport := http2Transport()
			defer transport.CloseIdleConnections()
			for range 2 {
				up, send := io.Pipe()
				r, _ := http.NewRequestWithContext(t.Context(), "POST", c.url+"/service/Method", up)
				r.Host = "5000-" + id + ".localhost"
				r.Header.Set("Content-Type", "application/grpc+proto")
				r.Header.Set("Te", "trailers")
				resp, err := transport.RoundTrip(r)
				must.Do(t, err)
				if resp.StatusCode != 200 {
					t.Fatalf("got %v, want status 200", resp.Status)
				}
				in := bufio.NewReader(resp.Body)
				for _, message := range []string{"one\n", "two\n"} {
					_, _ = io.WriteString(send, message)
					if got, err := in.ReadString('\n'); got != message {
						t.Fatalf("got %q, %v, want %q", got, err, message)
					}
				}
				_ = send.Close()
				if _, err := io.ReadAll(in); err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
					t.Errorf(`trailers %v, %v, want trailer "Grpc-Status" = %q and no error`, resp.Trailer, err, "0")
				}
				_ = resp.Body.Close()
				patience.Receive(t, "the end of the connection to the server", ended)
			}
		})
	}
}

// TestHTTPSPorts checks that connections to the listed ports use TLS, including websockets.
// Connections to other ports do not, and connections to envd never do.
func TestHTTPSPorts(t *testing.T) {
	t.Parallel()
	c := start(t)
	upgrader := websocket.Upgrader{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.ServerName != "" {
			t.Errorf("server name %q, want nothing", r.TLS.ServerName)
		}
		if !websocket.IsWebSocketUpgrade(r) {
			_, _ = io.WriteString(w, "secure "+r.Host)
			return
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		if kind, message, err := conn.ReadMessage(); err == nil {
			_ = conn.WriteMessage(kind, message)
		}
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	plain := serve(t, map[int]http.HandlerFunc{8080: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain") }})
	c.Add(Sandbox{ID: id, HTTPSPorts: []int{443, 8443}, Dial: func(ctx context.Context, port int) (net.Conn, error) {
		if port == 8443 {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}
		return plain(ctx, 8080)
	}})
	for port, want := range map[string]string{
		"8443": "200 secure 127.0.0.1", "8080": "200 plain", "49983": "200 plain",
		"443": `503 {"sandboxId":"` + id + `","message":"` + messageNoTLS + `","port":443,"code":503}`,
	} {
		resp, body := c.do(t, ask{method: "GET", host: "127.0.0.1", header: by(id, port)})
		if got := fmt.Sprint(resp.StatusCode, " ", body); got != want {
			t.Errorf("port %s: %s, want %s", port, got, want)
		}
	}
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(c.url, "http"), http.Header{protocol.HeaderSandboxID: {id}, protocol.HeaderSandboxPort: {"8443"}})
	must.Do(t, err)
	defer conn.Close()
	_ = conn.WriteMessage(websocket.TextMessage, []byte("hello"))
	if _, got, err := conn.ReadMessage(); string(got) != "hello" {
		t.Errorf("got %q, %v, want %q", got, err, "hello")
	}
}

// TestPrivateWebsocket checks that a private port requires the token for a websocket, too.
func TestPrivateWebsocket(t *testing.T) {
	t.Parallel()
	c := start(t)
	upgrader := websocket.Upgrader{}
	c.Add(Sandbox{ID: id, TrafficToken: traffic, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
			conn.Close()
		}
	}})})
	header := http.Header{protocol.HeaderSandboxID: {id}, protocol.HeaderSandboxPort: {"3000"}}
	for token, want := range map[string]int{"": 403, "wrong": 403, traffic: 101} {
		header.Set(protocol.HeaderTraffic, token)
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(c.url, "http"), header)
		if err == nil {
			conn.Close()
		}
		if resp == nil || resp.StatusCode != want {
			t.Errorf("token %q: %v, want %d", token, err, want)
		}
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method)
		w.Header().Set("Content-Length", "5")
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "hello")
		}
	}})})
	for method, want := range map[string]string{
		"HEAD": "200 HEAD 5 ", "OPTIONS": "200 OPTIONS 5 hello", "PROPFIND": "200 PROPFIND 5 hello", "DELETE": "200 DELETE 5 hello",
		"TRACE": fmt.Sprintf("405  %d %s", len(refusedMethod), refusedMethod),
	} {
		resp, body := c.do(t, ask{method: method, header: by(id, "3000")})
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Method"), " ", resp.ContentLength, " ", body); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
	conn := c.dial(t)
	fmt.Fprintf(conn, "CONNECT 3000-%s.localhost:80 HTTP/1.1\r\nHost: 3000-%[1]s.localhost:80\r\n\r\n", id)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Do(t, err)
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 405 || string(body) != refusedMethod {
		t.Errorf("CONNECT: %s %s, %v, want status 405 and body %v", resp.Status, body, err, refusedMethod)
	}
}

const refusedMethod = `{"sandboxId":"` + id + `","message":"` + messageMethod + `","code":405}`

// dial opens a bare connection to the listener.
func (c *cloud) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(c.url, "http://"))
	must.Do(t, err)
	t.Cleanup(func() { conn.Close() })
	must.Do(t, conn.SetDeadline(patience.Deadline()))
	return conn
}

// TestExpectContinue checks that a client that asks whether to send its body receives the answer of
// the server inside, and does not send a body that is refused.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}})})
	ask := func(path string) (net.Conn, *bufio.Reader, *http.Response) {
		conn := c.dial(t)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 3000-%s.localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", path, id)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		must.Do(t, err)
		return conn, in, resp
	}
	if _, _, resp := ask("/refuse"); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("refused: %s, want status http.StatusRequestEntityTooLarge", resp.Status)
	}
	conn, in, resp := ask("/take")
	if resp.StatusCode != http.StatusContinue {
		t.Fatalf("taken: %s, want status http.StatusContinue", resp.Status)
	}
	_, _ = io.WriteString(conn, "body")
	resp, err := http.ReadResponse(in, nil) // one 100 Continue, as without a server in between
	must.Do(t, err)
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "body" {
		t.Errorf("taken: %s %q, %v, want status 200 and body %q", resp.Status, body, err, "body")
	}
}

// TestOnePermission checks that a client receives exactly one 100 Continue, whatever number the
// server inside sends. The edge sends one, too, and either may be first.
func TestOnePermission(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusContinue)
		w.WriteHeader(http.StatusContinue)
		_, _ = io.Copy(w, r.Body)
	}})})
	conn := c.dial(t)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: 3000-%s.localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody", id)
	in := bufio.NewReader(conn)
	var got []int
	for len(got) == 0 || got[len(got)-1] == http.StatusContinue {
		resp, err := http.ReadResponse(in, nil)
		must.Do(t, err)
		got = append(got, resp.StatusCode)
	}
	if want := []int{http.StatusContinue, http.StatusOK}; !slices.Equal(got, want) {
		t.Errorf("got statuses %v, want %v", got, want)
	}
}

// TestSilentStream checks that a silent stream stays open in both directions for longer than any
// proxy of the hosted service allows.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, outside := newPipeListener(), newPipeListener()
		service := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: begin\n")
			_ = rc.Flush()
			line, _ := bufio.NewReader(r.Body).ReadString('\n')
			_, _ = io.WriteString(w, line)
		})}
		go service.Serve(inside)
		defer service.Close()
		rt := New(Options{})
		rt.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { return inside.dial() }})
		defer rt.Remove(id)
		front := &http.Server{Handler: rt}
		go front.Serve(outside)
		defer front.Close()

		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return outside.dial() }}
		defer transport.CloseIdleConnections()
		up, send := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://3000-"+id+".localhost/", up)
		resp, err := transport.RoundTrip(r)
		must.Do(t, err)
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		if line, err := in.ReadString('\n'); line != "data: begin\n" {
			t.Fatalf("got %q, %v, want %q", line, err, "data: begin\n")
		}
		<-time.After(2 * time.Hour)
		_, _ = io.WriteString(send, "data: still here\n")
		if line, err := in.ReadString('\n'); line != "data: still here\n" {
			t.Errorf("got %q, %v, want %q", line, err, "data: still here\n")
		}
		_ = send.Close()
	})
}

// pipeListener is an in-memory listener, for tests with fake time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial() (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestKilledWhileAnswering checks that the end of a sandbox does not look like the end of an answer
// of unknown length.
func TestKilledWhileAnswering(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"until the connection ends": "HTTP/1.0 200 OK\r\n\r\npart",
		"chunked":                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
		"of a length":               "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			cut := make(chan struct{})
			c.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					_, _ = http.ReadRequest(bufio.NewReader(far))
					_, _ = io.WriteString(far, head)
					<-cut
					far.Close()
				}()
				return near, nil
			}})
			r, _ := http.NewRequestWithContext(t.Context(), "GET", c.url, nil)
			r.Host = "3000-" + id + ".localhost"
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			resp, err := transport.RoundTrip(r)
			must.Do(t, err)
			defer resp.Body.Close()
			part := make([]byte, 4)
			if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "part" {
				t.Fatalf("got %q, %v, want %q and no error", part, err, "part")
			}
			c.Remove(id)
			close(cut)
			if rest, err := io.ReadAll(resp.Body); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %q and %v, want the connection to be reset", rest, err)
			}
			if resp, body := c.do(t, ask{method: "GET", host: r.Host}); resp.StatusCode != 502 || !strings.Contains(body, messageNotFound) {
				t.Errorf("the next request: %d %s, want status 502 and %q in it", resp.StatusCode, body, messageNotFound)
			}
		})
	}
}

// TestKilledWhileAnsweringHTTP2 checks that an HTTP/2 client notices that its answer is incomplete
// when the sandbox is killed: its stream is reset, and other streams of the connection are not.
func TestKilledWhileAnsweringHTTP2(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})})
	transport := http2Transport()
	defer transport.CloseIdleConnections()
	get := func(host string) *http.Response {
		r, err := http.NewRequestWithContext(patience.Context(t), "GET", c.url, nil)
		must.Do(t, err)
		r.Host = host
		resp, err := transport.RoundTrip(r)
		must.Do(t, err)
		return resp
	}
	resp := get("3000-" + id + ".localhost")
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	c.Remove(id)
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got %q and no error, want an answer that breaks off", rest)
	}
	next := get("localhost")
	defer next.Body.Close()
	if text, err := io.ReadAll(next.Body); err != nil || string(text) != "api /" {
		t.Errorf("the next request: got %q and error %v, want the API's answer", text, err)
	}
}

// TestTooManyConnections checks that the answer distinguishes a supervisor that cannot open more
// connections from a failure.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { return nil, fmt.Errorf("room: %w", ErrTooMany) }})
	resp, body := c.do(t, ask{method: "GET", header: by(id, "3000")})
	if want := `{"sandboxId":"` + id + `","message":"The sandbox has too many open connections","code":429}`; resp.StatusCode != 429 || body != want {
		t.Errorf("got %d %s, want status 429 and body %v", resp.StatusCode, body, want)
	}
	for err, want := range map[error]bool{errors.New("x"): false, fmt.Errorf("dial: %w", tls.RecordHeaderError{}): true} {
		if got := isPlain(err); got != want {
			t.Errorf("isPlain(%v) = %v, want %v", err, got, want)
		}
	}
}
