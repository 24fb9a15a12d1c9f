package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestWarnings checks that each class has at most one log entry a minute about refused requests,
// independently of the other classes.
func TestWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newSleeper(Sandbox{ID: id}, nil)
		t.Cleanup(u.close)
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, false}, {warnEvery - 1, false}, {1, true}, {1, false}, {2 * warnEvery, true}} {
			<-time.After(step.after)
			for k := range classes {
				if got := u.admissions[k].warn(); got != step.want {
					t.Errorf("class %d, %v later: got %v, want %v", k, step.after, got, step.want)
				}
			}
		}
	})
}

// lingering is a connection that remembers how it was closed.
type lingering struct {
	net.Conn
	calls []string
}

func (c *lingering) SetLinger(seconds int) error {
	c.calls = append(c.calls, fmt.Sprint("linger ", seconds))
	return nil
}

func (c *lingering) Close() error {
	c.calls = append(c.calls, "close")
	return c.Conn.Close()
}

// TestReset checks that plain and TLS connections are reset: nothing is sent before the close, not
// even the notice by which TLS ends a complete answer.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, secured := range []bool{false, true} {
		near, far := net.Pipe()
		defer far.Close()
		inner := &lingering{Conn: near}
		var conn net.Conn = inner
		if secured {
			conn = tls.Server(inner, &tls.Config{MinVersion: tls.VersionTLS12})
		}
		reset(conn)
		if diff := cmp.Diff([]string{"linger 0", "close"}, inner.calls); diff != "" {
			t.Errorf("secured %v (-want +got):\n%s", secured, diff)
		}
	}
}

// TestDefaultPorts checks the port of a Host header without a port.
func TestDefaultPorts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host    string
		secured bool
		port    uint16
		want    bool
	}{
		{"name", false, 80, true}, {"name", false, 443, false}, {"name", true, 443, true}, {"name", true, 80, false},
		{"name:80", true, 80, true}, {"name:443", false, 443, true}, {"name:443", true, 80, false}, {"NAME.:80", false, 80, true}, {"other", false, 80, false},
	} {
		r := &http.Request{Host: tt.host}
		if tt.secured {
			r.TLS = &tls.ConnectionState{}
		}
		if got := isAt(r, "name", tt.port); got != tt.want {
			t.Errorf("%s, secured %v, at port %d: got %v, want %v", tt.host, tt.secured, tt.port, got, tt.want)
		}
	}
}

// TestWhoGetsPages checks each header that distinguishes a program from a person with a browser.
func TestWhoGetsPages(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": true, "Sec-Fetch-Mode: navigate": true, "Sec-Fetch-Mode: cors": false, "Sec-Fetch-Mode: websocket": false, "X-Requested-With: XMLHttpRequest": false,
		"Upgrade: websocket": false, "Accept: text/html": true, "Accept: application/JSON": false, "User-Agent: Opera/9": true, "User-Agent: curl/8": false, "User-Agent: x Mozilla/5.0": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("User-Agent", "Mozilla/5.0")
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
		if got := wantsPage(r); got != want {
			t.Errorf("%q: got %v, want %v", header, got, want)
		}
	}
}

// TestHeadersOfErrors checks all headers of an error answer. No cache may keep an error page, and
// the page may not run scripts.
func TestHeadersOfErrors(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]http.Header{
		"curl/8": {"Content-Type": {"application/json; charset=utf-8"}},
		"Mozilla/5.0": {
			"Content-Type": {"text/html; charset=utf-8"}, "Cache-Control": {"no-store"},
			"Content-Security-Policy": {"default-src 'none'; style-src 'unsafe-inline'"},
		},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("User-Agent", agent)
		w := httptest.NewRecorder()
		writeError(w, r, sandboxError{SandboxID: id, Message: messageNotFound, Code: http.StatusBadGateway})
		want.Set("Content-Length", fmt.Sprint(w.Body.Len()))
		if diff := cmp.Diff(want, w.Header()); diff != "" || w.Code != http.StatusBadGateway {
			t.Errorf("%s: got %d, and headers (-want +got):\n%s", agent, w.Code, diff)
		}
	}
}

// TestEdgesOfExpirations checks the longest expiration of a signed URL, and the second at which a
// URL expires.
func TestEdgesOfExpirations(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]bool{0: true, 1: true, maxExpiration - 1: true, maxExpiration: true, maxExpiration + 1: false} {
		query := url.Values{"signature_expiration": {strings.Repeat("1", length)}}
		if got := signedURL(http.MethodGet, query) != nil; got != want {
			t.Errorf("an expiration of %d digits: got %v, want %v", length, got, want)
		}
	}
	now := time.Unix(1000, 999)
	for ending, want := range map[string]bool{"": false, ":": false, ":999": true, ":1000": false, ":1001": false, ":x": true, ":99999999999999999999": true} {
		if got := (&signed{ending: ending}).expired(now); got != want {
			t.Errorf("%q: got expired %v, want %v", ending, got, want)
		}
	}
}

// TestConnectionsAreForgotten checks that a connection that was closed is neither open nor held by
// its spell, and that a connection that is opened after the spell is closed at once.
func TestConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	var open opened
	dial := open.dial(func(context.Context, int) (net.Conn, error) {
		near, far := net.Pipe()
		return near, far.Close()
	})
	u := newUpstream(Sandbox{ID: id, Dial: dial}, nil)
	s := u.spell()
	first, err := s.dial(t.Context(), "tcp", "127.0.0.1:65535")
	second, failed := s.dial(t.Context(), "tcp", "127.0.0.1:1")
	must.Do(t, errors.Join(err, failed))
	for n, conn := range []net.Conn{first, second} {
		_ = conn.Close()
		if left := 1 - n; len(s.conns) != left || open.Load() != int64(left) {
			t.Errorf("after %d closes: got %d connections held and %d open, want %d", n+1, len(s.conns), open.Load(), left)
		}
	}
	if u.ends(t.Context()) || open.Load() != 0 {
		t.Errorf("got %d connections open after the question whether the sandbox has ended, want none", open.Load())
	}
	inner, err := dial(t.Context(), 1)
	must.Do(t, err)
	u.pause()
	if conn, err := s.add(inner); !errors.Is(err, errPaused) || conn != nil || open.Load() != 0 {
		t.Errorf("after the pause: got %v, error %v and %d open, want %v and none", conn, err, open.Load(), errPaused)
	}
	u.pause()
	if u.spell() != nil {
		t.Error("a paused sandbox has a spell")
	}
	u.close()
}

// TestDialEndsWithSpell checks that a pause of the sandbox ends a dial that hangs.
func TestDialEndsWithSpell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(Sandbox{ID: id, Dial: func(ctx context.Context, _ int) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, nil)
		defer u.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := u.spell()
		time.AfterFunc(time.Minute, u.pause)
		if _, err := s.dial(ctx, "tcp", "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want %v", err, context.Canceled)
		}
	})
}

// TestWakeEndsWithSandbox checks that a request does not wait for the wake of a sandbox that was
// removed.
func TestWakeEndsWithSandbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := New(Options{Wake: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		rt.Add(Sandbox{ID: id})
		rt.Pause(id)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/", nil)
		for name, value := range by(id, "3000") {
			r.Header.Set(name, value)
		}
		time.AfterFunc(time.Minute, func() { rt.Remove(id) })
		began := time.Now()
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		if w.Code != http.StatusBadGateway || time.Since(began) != time.Minute {
			t.Errorf("got %d %s after %v, want 502 after a minute", w.Code, w.Body, time.Since(began))
		}
	})
}

// TestSignersAreFoundAgain checks that the search for the sandbox of a signed URL leaves no lock
// held, whether it finds the sandbox or not.
func TestSignersAreFoundAgain(t *testing.T) {
	t.Parallel()
	rt := New(Options{})
	rt.Add(Sandbox{ID: id, AccessToken: token})
	for given, want := range map[string]bool{token: true, "other": false} {
		path := "/files?path=/a&signature=" + sign("/a:read::"+given, "")
		u := rt.signer(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if (u != nil) != want {
			t.Errorf("signed with %s: got found %v, want %v", given, u != nil, want)
		}
		if !rt.mu.TryLock() {
			t.Fatalf("signed with %s: the router stays locked", given)
		}
		rt.mu.Unlock()
	}
	rt.Remove(id)
}

// TestWakeOfGoneClient checks that nothing is answered if a wake ends because its client has gone:
// this is not a failure of the sandbox.
func TestWakeOfGoneClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	rt := New(Options{Wake: func(ctx context.Context, _ string) error { cancel(); return ctx.Err() }})
	rt.Add(Sandbox{ID: id})
	defer rt.Remove(id)
	rt.Pause(id)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://3000-"+id+".localhost/", nil)
	w := httptest.NewRecorder()
	defer func() {
		if got := recover(); !aborted(got) || w.Body.Len() > 0 {
			t.Errorf("got %v and the answer %s, want that the request is aborted", got, w.Body)
		}
	}()
	rt.ServeHTTP(w, r)
}

// TestDialEndsWithSandbox checks that the wait for a server that does not listen yet ends with the
// sandbox, and that the error reports the end of the sandbox.
func TestDialEndsWithSandbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { return nil, ErrPortClosed }}, []time.Duration{time.Hour})
		time.AfterFunc(time.Minute, u.close)
		start := time.Now()
		if _, err := u.spell().dial(t.Context(), "tcp", "127.0.0.1:1"); !errors.Is(err, ErrGone) || time.Since(start) != time.Minute {
			t.Errorf("got error %v after %v, want %v after a minute", err, time.Since(start), ErrGone)
		}
	})
}
