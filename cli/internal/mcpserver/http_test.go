package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

const jsonHeaders = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"

// heldListener is a listener whose limits of time pass when the test says so, and never by themselves.
type heldListener struct {
	net.Listener
	mu    sync.Mutex
	conns map[*heldConn]struct{}
}

// heldConn is a connection that keeps its limits instead of obeying them. They are protected by the listener's mutex.
type heldConn struct {
	net.Conn
	listener    *heldListener
	read, write time.Time // zero: no limit
}

func (l *heldListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := inner.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
		return nil, err
	}
	c := &heldConn{Conn: inner, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return c, nil
}

func (c *heldConn) Close() error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	delete(c.listener.conns, c)
	return c.Conn.Close()
}

// hold keeps a limit that is to come. Others, which net/http sets to wake up a reader, are real.
func (c *heldConn) hold(limit *time.Time, set func(time.Time) error, at time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	*limit = time.Time{}
	if time.Until(at) > 0 {
		*limit, at = at, time.Time{}
	}
	return set(at)
}

func (c *heldConn) SetReadDeadline(t time.Time) error {
	return c.hold(&c.read, c.Conn.SetReadDeadline, t)
}

func (c *heldConn) SetWriteDeadline(t time.Time) error {
	return c.hold(&c.write, c.Conn.SetWriteDeadline, t)
}

// count returns how many open connections have a limit for reading, and how many are open.
func (l *heldListener) count() (reading, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if !c.read.IsZero() {
			reading++
		}
	}
	return reading, len(l.conns)
}

// pass has those limits pass that are over after a time.
func (l *heldListener) pass(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, past := time.Now().Add(after), time.Unix(1, 0)
	over := func(limit *time.Time, set func(time.Time) error) {
		if !limit.IsZero() && limit.Before(now) {
			*limit = time.Time{}
			_ = set(past) // the connection may be closed
		}
	}
	for c := range l.conns {
		over(&c.read, c.Conn.SetReadDeadline)
		over(&c.write, c.Conn.SetWriteDeadline)
	}
}

// heldWeb serves a handler, with limits that pass when the test says so.
func heldWeb(t *testing.T, handler http.Handler) (*httptest.Server, *heldListener) {
	t.Helper()
	web := httptest.NewUnstartedServer(handler)
	l := &heldListener{Listener: web.Listener, conns: map[*heldConn]struct{}{}}
	web.Listener = l
	web.Start()
	t.Cleanup(web.Close)
	return web, l
}

// Requests that are wrong, too large or never end are refused, and the connection of one that never ends is closed.
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	web, limits := heldWeb(t, serve(t, nil).Handler(testToken))
	host := web.Listener.Addr().String()
	known := "Authorization: Bearer " + testToken + "\r\n" + jsonHeaders
	length := func(n int) string { return "Content-Length: " + strconv.Itoa(n) + "\r\n" }
	for name, test := range map[string]struct {
		method, host, headers, body string
		want                        int
		endless                     bool
	}{
		"no token":              {"POST", host, jsonHeaders + length(len(ping)), ping, http.StatusUnauthorized, false},
		"wrong token":           {"POST", host, "Authorization: Bearer x\r\n" + jsonHeaders + length(len(ping)), ping, http.StatusUnauthorized, false},
		"page of another site":  {"POST", host, known + "Origin: http://evil.example\r\n" + length(len(ping)), ping, http.StatusForbidden, false},
		"name that was rebound": {"POST", "evil.example", known + length(len(ping)), ping, http.StatusForbidden, false},
		"unknown method":        {"PUT", host, known + length(len(ping)), ping, http.StatusMethodNotAllowed, false},
		"no message":            {"POST", host, known + length(1), "x", http.StatusBadRequest, false},
		"unknown session":       {"POST", host, known + "Mcp-Session-Id: x\r\n" + length(len(ping)), ping, http.StatusNotFound, false},
		"too large":             {"POST", host, known + length(MaxRequestBytes+1), strings.Repeat(" ", MaxRequestBytes+1), http.StatusRequestEntityTooLarge, false},
		"never ends":            {"POST", host, known + length(100), "{", http.StatusRequestTimeout, true},
		"never ends, no token":  {"POST", host, jsonHeaders + length(100), "{", http.StatusUnauthorized, true},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
			must.Do(t, err)
			defer conn.Close()
			must.Do(t, conn.SetDeadline(time.Now().Add(patience.Limit)))
			_, err = conn.Write([]byte(test.method + " /mcp HTTP/1.1\r\nHost: " + test.host + "\r\n" + test.headers + "\r\n" + test.body))
			must.Do(t, err)
			if test.endless {
				patience.Until(t, "the time for the request is limited", func() bool { reading, _ := limits.count(); return reading > 0 })
				limits.pass(bodyPatience)
			}
			answers := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answers, nil)
			must.Do(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			must.Do(t, err)
			if resp.StatusCode != test.want {
				t.Errorf("got %s, want %d", resp.Status, test.want)
			}
			if test.endless {
				if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
					t.Errorf("got %v from the connection, want its end", err)
				}
			}
		})
	}
}

// The limits of time for a request and its answer are none for its call.
func TestCallsOutlastTheLimitsOfARequest(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, func(c *Config) {
		c.Prepare = func(ctx context.Context, _ *sandbox.Sandbox) error {
			begun <- struct{}{}
			return wait(ctx, goOn)
		}
	})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			web, limits := heldWeb(t, s.Handler(testToken))
			c := connectTo(t, web.URL, version)
			t.Cleanup(func() { // a call that is left after a failure
				select {
				case goOn <- struct{}{}:
				default:
				}
			})
			answer, failed := make(chan answerOf, 1), make(chan error, 1)
			go func() {
				result, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: args{"command": "echo done"}})
				if err != nil {
					failed <- err
					result = &sdk.CallToolResult{}
				}
				answer <- pieces(result)
			}()
			patience.Receive(t, "the call", begun)
			patience.Until(t, "no request has a limit", func() bool { reading, _ := limits.count(); return reading == 0 })
			limits.pass(time.Hour)
			goOn <- struct{}{}
			if a := patience.Receive(t, "the answer", answer); !strings.Contains(a.text, "done") {
				t.Errorf("got %+v and %d errors, want the answer", a, len(failed))
			}
		})
	}
}

// A client that does not read its answer loses its connection, and holds no call.
func TestAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	web, limits := heldWeb(t, inTime(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 16<<20))
		ended <- err
	})))
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", web.Listener.Addr().String())
	must.Do(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	must.Do(t, err)
	patience.Until(t, "the connection is closed", func() bool {
		limits.pass(time.Hour)
		_, open := limits.count()
		return open == 0 && len(ended) == 1
	})
	must.Is(t, <-ended, os.ErrDeadlineExceeded)
}

// limited is an answer that records its limits of time.
type limited struct {
	*httptest.ResponseRecorder
	read, write []time.Time
	parts       []int
	failAt      int // the part that cannot be written; 0: none
}

func (l *limited) SetReadDeadline(at time.Time) error  { l.read = append(l.read, at); return nil }
func (l *limited) SetWriteDeadline(at time.Time) error { l.write = append(l.write, at); return nil }
func (l *limited) Flush()                              {}

func (l *limited) Write(p []byte) (int, error) {
	l.parts = append(l.parts, len(p))
	if len(l.parts) == l.failAt {
		return 1, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestLimitsOfAnswers checks that each part of an answer has its own limit of time, and that the limit of a body
// ends when the body has arrived.
func TestLimitsOfAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &limited{ResponseRecorder: httptest.NewRecorder(), failAt: 4}
		inTime(withWholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); string(body) != "text" || err != nil {
				t.Errorf("got the body %q and error %v", body, err)
			}
			<-time.After(time.Second)
			w.WriteHeader(http.StatusTeapot)
			<-time.After(time.Second)
			if n, err := w.Write(make([]byte, 2*readBytes+1)); n != 2*readBytes+1 || err != nil {
				t.Errorf("got %d, %v", n, err)
			}
			<-time.After(time.Second)
			must.Do(t, http.NewResponseController(w).Flush())
			if n, err := w.Write(make([]byte, 3)); n != 1 || !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("a broken answer: got %d, %v", n, err)
			}
		}))).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("text")))
		if diff := cmp.Diff([]time.Time{began.Add(bodyPatience), {}}, w.read); diff != "" {
			t.Errorf("limits of the body (-want +got):\n%s", diff)
		}
		var after []time.Duration
		for _, at := range w.write {
			after = append(after, at.Sub(began)-readPatience)
		}
		if diff := cmp.Diff([]time.Duration{0, time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}, after); diff != "" {
			t.Errorf("limits of the answer (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int{readBytes, readBytes, 1, 3}, w.parts); diff != "" || w.Code != http.StatusTeapot {
			t.Errorf("status %d, parts (-want +got):\n%s", w.Code, diff)
		}
	})
	for size, want := range map[int]int{0: http.StatusOK, MaxRequestBytes: http.StatusOK, MaxRequestBytes + 1: http.StatusRequestEntityTooLarge, -1: http.StatusRequestTimeout} {
		body := io.Reader(strings.NewReader(strings.Repeat("x", max(0, size))))
		if size < 0 {
			body = iotest.ErrReader(os.ErrDeadlineExceeded)
		}
		w := httptest.NewRecorder()
		withWholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); n != int64(size) || err != nil {
				t.Errorf("%d bytes: got %d and error %v", size, n, err)
			}
		})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", body))
		if w.Code != want {
			t.Errorf("%d bytes: got status %d, want %d", size, w.Code, want)
		}
	}
}
