package edge

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// counted is a server in a sandbox that reports how many of its connections are open.
type counted struct {
	*httptest.Server
	open atomic.Int64
}

func serveCounted(t *testing.T, h http.Handler) *counted {
	t.Helper()
	c := &counted{Server: httptest.NewUnstartedServer(h)}
	c.Config.Protocols = new(http.Protocols)
	c.Config.Protocols.SetHTTP1(true)
	c.Config.Protocols.SetUnencryptedHTTP2(true)
	c.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			c.open.Add(1)
		case http.StateClosed:
			c.open.Add(-1)
		case http.StateActive, http.StateIdle, http.StateHijacked:
		}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

func (c *counted) dial(ctx context.Context, _ int) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", c.Listener.Addr().String())
}

// quiet waits until no connection is open.
func (c *counted) quiet(t *testing.T) {
	t.Helper()
	patience.Until(t, "no connection into the sandbox is open", func() bool { return c.open.Load() == 0 })
}

// phases returns a handler whose requests stop in different phases: before the answer, in the
// upload, in a stream, and in a download that the client does not read. It calls begin when a
// request arrives.
func phases(begin func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		begin()
		<-r.Context().Done()
	})
	upload := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 4))
		begin()
		_, _ = io.Copy(io.Discard, r.Body)
	}
	mux.HandleFunc("/upload", upload)
	mux.HandleFunc("/files", upload)
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		begin()
		<-r.Context().Done()
	})
	mux.HandleFunc("/download", func(w http.ResponseWriter, _ *http.Request) {
		begin()
		for { // until every buffer between them is full, and a little longer
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	return mux
}

// unending returns the body of an upload. It sends 4 of 100 bytes, and then waits until it is
// closed.
func unending() io.ReadCloser {
	up, _ := io.Pipe()
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader("part"), up), up}
}

// TestPauseEndsRequests checks that a pause cuts off both sides of a request at once, in
// every phase, even if the client neither sends nor reads.
func TestPauseEndsRequests(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	inside := phases(func() { begun <- struct{}{} })
	tests := []struct {
		path   string
		port   string
		stalls bool // the client does not read
		upload bool
	}{
		{path: "/silent", port: "3000"}, {path: "/silent", port: "49983"},
		{path: "/upload", port: "3000", upload: true}, {path: "/files", port: "49983", upload: true},
		{path: "/stream", port: "3000"}, {path: "/download", port: "49983", stalls: true},
	}
	for _, http2 := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("HTTP/2 %v %s %s", http2, tt.path, tt.port), func(t *testing.T) {
				c := start(t)
				server := serveCounted(t, inside)
				c.Add(Sandbox{ID: id, Dial: server.dial})
				send := http1(c.dial(t))
				if http2 {
					transport := http2Transport()
					defer transport.CloseIdleConnections()
					send = transport.RoundTrip
				}
				r, err := http.NewRequestWithContext(t.Context(), "GET", c.url+tt.path, nil)
				must.Do(t, err)
				if tt.upload {
					r.Method, r.Body, r.ContentLength = "POST", unending(), 100
					defer r.Body.Close()
				}
				for name, value := range by(id, tt.port) {
					r.Header.Set(name, value)
				}
				reading := make(chan struct{})
				ended := make(chan error, 1)
				go func() {
					response, err := send(r)
					if err != nil {
						ended <- err
						return
					}
					defer response.Body.Close()
					if tt.stalls {
						<-reading
					}
					_, err = io.Copy(io.Discard, response.Body)
					ended <- err
				}()
				patience.Receive(t, "the beginning of a request", begun)
				c.Pause(id)
				c.Pause(id)
				server.quiet(t)
				answered(t, c.lookup(id)) // independent of the client
				close(reading)
				if err := patience.Receive(t, "the end of the client's connection", ended); err == nil {
					t.Error("got an answer that seems whole, want one that breaks off")
				}
			})
		}
	}
}

// http1 returns a function that sends a request over a connection. The client of net/http cannot be
// used: it waits for the body of the request even when its connection has ended.
func http1(conn net.Conn) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		go func() { _ = r.Write(conn) }()
		return http.ReadResponse(bufio.NewReader(conn), r)
	}
}

// TestPauseDropsIdleConnections checks that a pause closes a connection that waits for the next
// request to envd. Otherwise that connection would be used after a resume, although it no longer
// works.
func TestPauseDropsIdleConnections(t *testing.T) {
	t.Parallel()
	c := start(t)
	server := serveCounted(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c.Add(Sandbox{ID: id, Dial: server.dial})
	ask := ask{method: "GET", header: by(id, "49983")}
	if resp, _ := c.do(t, ask); resp.StatusCode != 200 || server.open.Load() != 1 {
		t.Fatalf("got status %d and %d connections, want 200 and 1", resp.StatusCode, server.open.Load())
	}
	c.Pause(id)
	server.quiet(t)
	if resp, body := c.do(t, ask); resp.StatusCode != 502 || server.open.Load() != 0 {
		t.Errorf("paused: got %d %s and %d connections, want 502 and none", resp.StatusCode, body, server.open.Load())
	}
	c.Resume(id)
	awake := c.lookup(id).spell()
	c.Resume(id)
	if c.lookup(id).spell() != awake {
		t.Error("a second resume lets go of the connections of the first")
	}
	if resp, body := c.do(t, ask); resp.StatusCode != 200 {
		t.Errorf("resumed: got %d %s, want 200", resp.StatusCode, body)
	}
	c.Pause("inobody")
	c.Resume("inobody")
}

// TestDialMeetsPause checks that a connection that is being opened when the sandbox is paused is
// not used, and is closed.
func TestDialMeetsPause(t *testing.T) {
	t.Parallel()
	rt := New(Options{})
	near, far := net.Pipe()
	rt.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
		rt.Pause(id)
		return near, nil
	}})
	defer rt.Remove(id)
	defer func() {
		if got := recover(); !aborted(got) {
			t.Errorf("got %v, want that the request is aborted", got)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want that the connection is closed", err)
		}
	}()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
	for name, value := range by(id, "3000") {
		r.Header.Set(name, value)
	}
	rt.ServeHTTP(httptest.NewRecorder(), r)
}

// aborted reports whether a handler panicked in order to break the client's connection.
func aborted(recovered any) bool {
	err, ok := recovered.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

func refuseWake(err error) func(context.Context, string) error {
	return func(context.Context, string) error { return fmt.Errorf("lifecycle: %w", err) }
}

// waker is a Wake whose callers wait until the test lets them continue.
type waker struct {
	waiting chan context.Context
	resume  chan struct{}
}

func newWaker() *waker {
	return &waker{waiting: make(chan context.Context, 2*maxRequests), resume: make(chan struct{})}
}

func (w *waker) wake(ctx context.Context, _ string) error {
	w.waiting <- ctx
	select {
	case <-w.resume:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestWakeIsAwaited checks that requests that wait for a sandbox to wake have the same limit as
// forwarded requests, and arrive complete.
func TestWakeIsAwaited(t *testing.T) {
	t.Parallel()
	c := start(t)
	w := newWaker()
	c.options.Wake = w.wake
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }})})
	c.Pause(id)
	const many = 20
	others := &c.lookup(id).admissions[toPrograms].inFlight
	defer others.Add(many - maxRequests)
	others.Store(maxRequests - many)
	var asking sync.WaitGroup
	for range many {
		asking.Go(func() {
			resp, body := c.do(t, ask{method: "POST", header: by(id, "3000"), body: strings.NewReader("whole")})
			if resp.StatusCode != 200 || body != "whole" {
				t.Errorf("got %d %q, want 200 %q", resp.StatusCode, body, "whole")
			}
		})
	}
	for range many {
		patience.Receive(t, "a request that waits", w.waiting)
	}
	if resp, body := c.do(t, ask{method: "GET", header: by(id, "3000")}); resp.StatusCode != 429 {
		t.Errorf("one more: got %d %s, want 429", resp.StatusCode, body)
	}
	c.Resume(id)
	close(w.resume)
	asking.Wait()
}

// TestWaitForWakeEnds checks that the request of a client that goes away no longer waits. A request
// for a sandbox that is removed meanwhile is answered as not found.
func TestWaitForWakeEnds(t *testing.T) {
	t.Parallel()
	c := start(t)
	w := newWaker()
	c.options.Wake = w.wake
	c.Add(Sandbox{ID: id})
	c.Pause(id)
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", c.url, nil)
	for name, value := range by(id, "3000") {
		r.Header.Set(name, value)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	left := make(chan error, 1)
	go func() {
		_, err := transport.RoundTrip(r)
		left <- err
	}()
	waits := patience.Receive(t, "a request that waits", w.waiting)
	leave()
	if err := patience.Receive(t, "the end of the request", left); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	patience.Receive(t, "the end of the wait", waits.Done())

	answered := make(chan string, 1)
	go func() {
		resp, body := c.do(t, ask{method: "GET", header: by(id, "3000")})
		answered <- fmt.Sprint(resp.StatusCode, " ", body)
	}()
	patience.Receive(t, "a request that waits", w.waiting)
	c.Remove(id)
	if got, want := patience.Receive(t, "the answer after the end", answered), `502 {"sandboxId":"`+id+`","message":"`+messageNotFound+`","code":502}`; got != want {
		t.Errorf("removed: got %s, want %s", got, want)
	}
}

// TestPauseAndResumeRace checks that each request is answered by the sandbox or breaks off,
// for any order of requests, pauses and resumes, and that nothing stays open.
func TestPauseAndResumeRace(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.options.Wake = func(context.Context, string) error { c.Resume(id); return nil }
	server := serveCounted(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	c.Add(Sandbox{ID: id, Dial: server.dial})
	var work sync.WaitGroup
	const clients = 8
	answered := make(chan struct{}, clients*50)
	for n := range clients {
		work.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for range 50 {
				r, _ := http.NewRequestWithContext(t.Context(), "POST", c.url, nil)
				for name, value := range by(id, []string{"3000", "49983"}[n%2]) {
					r.Header.Set(name, value)
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					continue
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				switch {
				case err == nil && resp.StatusCode == 200 && string(body) == "here":
					answered <- struct{}{}
				case err == nil && resp.StatusCode != http.StatusConflict:
					t.Errorf("got %d %q, want 200 %q", resp.StatusCode, body, "here")
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	pauses := 0
	for ended := false; !ended; pauses++ {
		select {
		case <-answered:
		case <-done:
			ended = true
		}
		c.Pause(id)
	}
	server.quiet(t)
	if pauses < 2 {
		t.Errorf("got %d pauses, want that some met requests", pauses)
	}
}

// TestExpiry checks that a signature is valid up to and including its last second, as in envd.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for expiration, want := range map[string]bool{"": false, "1000": false, "999": true, "-1": true, "x": true, "99999999999999999999": true} {
		s := &signed{}
		if expiration != "" {
			s.ending = ":" + expiration
		}
		if got := s.expired(time.Unix(1000, 0)); got != want {
			t.Errorf("%q: got expired %v, want %v", expiration, got, want)
		}
	}
}

// TestLongExpiration checks that an expiration with the maximum number of digits is accepted, and
// that a URL with more digits belongs to no sandbox.
func TestLongExpiration(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]bool{1: true, maxExpiration - 1: true, maxExpiration: true, maxExpiration + 1: false} {
		expiration := strings.Repeat("1", length)
		signature, err := url.QueryUnescape(sign("/a:read::"+token, expiration))
		must.Do(t, err)
		s := signedURL(http.MethodGet, url.Values{"path": {"/a"}, "signature": {signature}, "signature_expiration": {expiration}})
		if got := s != nil && s.signedBy(token); got != want {
			t.Errorf("%d digits: got signed %v, want %v", length, got, want)
		}
	}
}

// TestPauseWhileDialling checks that a pause ends a request that waits for a connection or for a
// server to listen, and also ends its dial.
func TestPauseWhileDialling(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(context.Context) error{
		"a port that is closed":     func(context.Context) error { return ErrPortClosed },
		"a connection that is slow": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := New(Options{})
				rt.pauses = []time.Duration{time.Hour}
				begun, ended := 0, 0
				rt.Add(Sandbox{ID: id, Dial: func(ctx context.Context, _ int) (net.Conn, error) {
					begun++
					err := dial(ctx)
					ended++
					return nil, err
				}})
				defer rt.Remove(id)
				aborts := make(chan any)
				go func() {
					defer func() { aborts <- recover() }()
					r := httptest.NewRequestWithContext(t.Context(), "GET", "http://3000-"+id+".localhost/", nil)
					rt.ServeHTTP(httptest.NewRecorder(), r)
				}()
				synctest.Wait()
				at := time.Now()
				rt.Pause(id)
				if got := <-aborts; !aborted(got) || time.Since(at) != 0 {
					t.Errorf("got %v after %v, want that it is aborted at once", got, time.Since(at))
				}
				synctest.Wait()
				if ended != 1 {
					t.Errorf("got %d of %d dials ended at the pause, want the one", ended, begun)
				}
				<-time.After(2 * time.Hour)
				if begun != 1 {
					t.Errorf("got %d dials, want none after the pause", begun)
				}
			})
		})
	}
}

// sign returns the signature of an operation, with an expiration unless that is empty.
func sign(operation, expiration string) string {
	if expiration != "" {
		operation += ":" + expiration
	}
	sum := sha256.Sum256([]byte(operation))
	return "v1_" + url.QueryEscape(base64.RawStdEncoding.EncodeToString(sum[:]))
}
