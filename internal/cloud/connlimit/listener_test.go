package connlimit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a real server behind a listener. It admits requests to /known, /hang and /upgrade, and
// no others. Requests to /hang are served until hung is closed. Requests to /upgrade take over the
// connection and never use it.
type server struct {
	limit   *limit
	address string
	hanging chan struct{} // receives one value for each request that hangs or is upgraded
	hung    chan struct{}
	log     *logged
	close   func() // waits for the handlers
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

func start(t *testing.T, limit int, strangers time.Duration) *server {
	t.Helper()
	s := &server{hanging: make(chan struct{}, 100), hung: make(chan struct{}), log: &logged{}}
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	l := New(inner.(*net.TCPListener), Options{Max: limit, Patience: strangers, Logger: slog.New(slog.NewTextHandler(s.log, nil)), Advice: "; advice"})
	s.limit, s.address = l.limit, l.Addr().String()
	var handlers sync.WaitGroup
	server := &http.Server{
		ConnContext: ConnContext,
		Protocols:   new(http.Protocols),
		Handler: Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			switch r.URL.Path {
			case "/known":
				Admit(r.Context())
				Admit(r.Context()) // counts only once
			case "/hang":
				Admit(r.Context())
				s.hanging <- struct{}{}
				<-s.hung
			case "/upgrade":
				Admit(r.Context())
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				s.hanging <- struct{}{}
				_, _ = io.Copy(io.Discard, conn) // until the client closes it, or the listener
				return
			}
			_, _ = io.WriteString(w, r.URL.Path)
		})),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.close = sync.OnceFunc(func() {
		close(s.hung)
		if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("got %v, want http.ErrServerClosed", err)
		}
		handlers.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.conns) > 0 || l.strangers.Len() > 0 || l.idle.Len() > 0 {
			t.Errorf("%d connections are left, %d strangers, %d idle, want none", len(l.conns), l.strangers.Len(), l.idle.Len())
		}
	})
	t.Cleanup(s.close)
	return s
}

// client is one connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (s *server) dial(t *testing.T) *client {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address)
	must.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must.Do(t, conn.SetDeadline(patience.Deadline()))
	return &client{conn, bufio.NewReader(conn)}
}

// get sends a request over the connection, and reads the answer.
func (c *client) get(path string) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && string(body) != path {
		err = fmt.Errorf("answered %q", body)
	}
	return err
}

func (c *client) mustGet(t *testing.T, path string) {
	t.Helper()
	if err := c.get(path); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}

// mustEnd waits until the server has closed the connection.
func (c *client) mustEnd(t *testing.T, name string) {
	t.Helper()
	_, err := io.Copy(io.Discard, c.in)
	if isTimeout(err) {
		t.Errorf("%s: the connection stays open", name)
	}
}

func (c *client) write(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	must.Do(t, err)
}

// http2 sends the preface and settings.
func (c *client) http2(t *testing.T) *http2.Framer {
	t.Helper()
	c.write(t, http2.ClientPreface)
	framer := http2.NewFramer(c, c.in)
	must.Do(t, framer.WriteSettings())
	return framer
}

func head(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: path}} {
		_ = e.WriteField(f) // to memory
	}
	return b.Bytes()
}

// TestStrangersEnd checks that a connection on which no request was admitted ends, even if it is
// kept busy. A connection on which a request was admitted stays.
func TestStrangersEnd(t *testing.T) {
	t.Parallel()
	s := start(t, 100, 5*time.Second) // enough for a busy machine to make all requests
	known := s.dial(t)
	known.mustGet(t, "/known")
	busy := s.dial(t)
	busy.write(t, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
	upgraded := s.dial(t)
	upgraded.write(t, "GET /upgrade HTTP/1.1\r\nHost: x\r\n\r\n")
	multiplexed := s.dial(t)
	framer := multiplexed.http2(t)
	must.Do(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head("/hang"), EndStream: true, EndHeaders: true}))
	for range 3 {
		<-s.hanging
	}
	strangers := map[string]func(c *client){
		"nothing":                  func(*client) {},
		"half a head":              func(c *client) { c.write(t, "GET /known HTTP/1.1\r\nHost: ") },
		"idle after a request":     func(c *client) { c.mustGet(t, "/unknown") },
		"a body that does not end": func(c *client) { c.write(t, "POST /unknown HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n") },
		"half a preface":           func(c *client) { c.write(t, http2.ClientPreface[:16]) },
		"a preface":                func(c *client) { c.write(t, http2.ClientPreface) },
		"HTTP/2 without a request": func(c *client) { c.http2(t) },
		"HTTP/2 after a request": func(c *client) {
			_ = c.http2(t).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head("/unknown"), EndStream: true, EndHeaders: true})
		},
		"HTTP/2 and half a head": func(c *client) {
			_ = c.http2(t).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head("/known")})
		},
		"HTTP/2 and an endless body": func(c *client) {
			_ = c.http2(t).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head("/unknown"), EndHeaders: true})
		},
		"answers that are not read": func(c *client) {
			_ = c.SetWriteDeadline(patience.Deadline())
			for {
				if _, err := io.WriteString(c, strings.Repeat("GET /unknown HTTP/1.1\r\nHost: x\r\n\r\n", 100)); err != nil {
					if isTimeout(err) {
						t.Error("answers that are not read: the connection stays open")
					}
					return
				}
			}
		},
	}
	var waiting sync.WaitGroup
	for name, hold := range strangers {
		c := s.dial(t)
		hold(c)
		waiting.Go(func() { c.mustEnd(t, name) })
	}
	waiting.Wait()
	known.mustGet(t, "/known")
	must.Do(t, framer.WritePing(false, [8]byte{1}))
	for acknowledged := false; !acknowledged; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal("HTTP/2 in use: ", err)
		}
		ping, ok := frame.(*http2.PingFrame)
		acknowledged = ok && ping.IsAck()
	}
	for name, c := range map[string]*client{"in use": busy, "upgraded": upgraded} {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.in.ReadByte(); !isTimeout(err) {
			t.Errorf("%s: got %v, want a timeout", name, err)
		}
	}
}

// TestStrangersAreForgotten checks that a connection that was a stranger for too long no longer
// counts, even if the server has not noticed that it was closed.
func TestStrangersAreForgotten(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	l := New(inner.(*net.TCPListener), Options{Max: 1, Patience: 1, Logger: slog.New(slog.DiscardHandler)})
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	must.Do(t, err)
	defer client.Close()
	if _, err := l.Accept(); err != nil { // closed by the listener
		t.Fatal(err)
	}
	patience.Until(t, "no connection counts", func() bool { return l.Count() == 0 })
	must.Do(t, l.Close())
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// TestCloseEndsUpgraded checks that Close ends upgraded connections, which the server no longer
// knows. Otherwise their handlers would wait for the client.
func TestCloseEndsUpgraded(t *testing.T) {
	t.Parallel()
	s := start(t, 4, time.Hour)
	c := s.dial(t)
	c.write(t, "GET /upgrade HTTP/1.1\r\nHost: x\r\n\r\n")
	<-s.hanging
	closed := make(chan struct{})
	go func() { defer close(closed); s.close() }()
	c.mustEnd(t, "upgraded")
	_ = c.Close() // so that the handler ends in any case
	<-closed
}

// TestOldestIdleMakesRoom checks that strangers are closed before admitted connections when the
// limit is reached, each kind oldest first. Connections in use are never closed.
func TestOldestIdleMakesRoom(t *testing.T) {
	t.Parallel()
	s := start(t, 4, time.Hour)
	first, second := s.dial(t), s.dial(t)
	first.mustGet(t, "/known")
	second.mustGet(t, "/known")
	first.mustGet(t, "/known") // so second has been idle for longest
	old, young := s.dial(t), s.dial(t)
	old.mustGet(t, "/unknown")
	young.mustGet(t, "/unknown")

	busy := make([]*client, 4)
	for i, gone := range []*client{old, young, second, first} {
		busy[i] = s.dial(t)
		path := "/hang"
		if i == 0 {
			path = "/upgrade"
		}
		busy[i].write(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		<-s.hanging
		gone.mustEnd(t, fmt.Sprint("connection ", i))
		if i == 1 {
			second.mustGet(t, "/unknown") // not admitted, so it keeps its place in the order
		}
	}
	late := s.dial(t)
	late.mustEnd(t, "one for which there is no room")
	if got := s.log.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "limit=4") || !strings.Contains(got, "in use; advice") {
		t.Errorf("the log says %q, want one line with %q and %q", got, "limit=4", "in use; advice")
	}
	s.limit.mu.Lock()
	s.limit.warned = s.limit.warned.Add(-warnEvery)
	s.limit.mu.Unlock()
	late = s.dial(t)
	late.mustEnd(t, "another one without room")
	if got := s.log.text(); strings.Count(got, "\n") != 2 {
		t.Errorf("after %v the log says %q, want a second line", warnEvery, got)
	}
	_ = busy[0].Close() // makes room once the server notices
	for served := false; !served; {
		c := s.dial(t)
		served = c.get("/known") == nil
		_ = c.Close()
	}
}
