package edge

import (
	"bufio"
	"context"
	"errors"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// shut is a connection that remembers whether it was closed.
type shut struct {
	net.Conn

	closed bool
}

func (c *shut) Close() error {
	c.closed = true
	return nil
}

// TestCloseEndsConnections checks that the end of a sandbox closes its connections at once. The test runs
// before the parallel ones, whose servers wait for the end of each connection.
func TestCloseEndsConnections(t *testing.T) {
	inside := &shut{}
	u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { return inside, nil }}, nil)
	s := u.spell()
	_, err := s.dial(t.Context(), "tcp", "127.0.0.1:1")
	must.Do(t, err)
	if inside.closed {
		t.Error("the connection was closed before the end of the sandbox")
	}
	u.close()
	if late, err := s.add(&shut{}); !inside.closed || !errors.Is(err, errPaused) {
		t.Errorf("closed: %v; then got the connection %v and error %v, want none and %v", inside.closed, late, err, errPaused)
	}
}

// TestDialNeedsAPort checks that an address without a valid port reaches no sandbox, and that the error says
// why.
func TestDialNeedsAPort(t *testing.T) {
	t.Parallel()
	u := newUpstream(Sandbox{ID: id, Dial: func(_ context.Context, port int) (net.Conn, error) {
		t.Errorf("port %d was dialled", port)
		return nil, ErrPortClosed
	}}, nil)
	defer u.close()
	for address, want := range map[string]func(error) bool{
		"127.0.0.1":       is[*net.AddrError],
		"127.0.0.1:":      is[*strconv.NumError],
		"127.0.0.1:x":     is[*strconv.NumError],
		"127.0.0.1:0":     func(err error) bool { return errors.Is(err, ErrPortClosed) },
		"127.0.0.1:-1":    func(err error) bool { return errors.Is(err, ErrPortClosed) },
		"127.0.0.1:65536": func(err error) bool { return errors.Is(err, ErrPortClosed) },
	} {
		if conn, err := u.spell().dial(t.Context(), "tcp", address); conn != nil || !want(err) {
			t.Errorf("%s: got %v and error %v", address, conn, err)
		}
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestReceivedAnswers checks answers that a sandbox sent before it ended: an answer that says where its body
// ends is whole, and one that ends with its connection is not.
func TestReceivedAnswers(t *testing.T) {
	t.Parallel()
	for answer, whole := range map[string]bool{
		"Content-Length: 4\r\n\r\ntext":                            true,
		"Transfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n0\r\n\r\n": true,
		"\r\ntext": false,
	} {
		sent := make(chan error, 1)
		u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				_, err := http.ReadRequest(bufio.NewReader(far))
				if err == nil {
					_, err = io.WriteString(far, "HTTP/1.1 200 OK\r\n"+answer)
				}
				sent <- errors.Join(err, far.Close())
			}()
			return near, nil
		}}, nil)
		to := &target{upstream: u, spell: u.spell(), port: 3000}
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), targetKey{}, to), http.MethodGet, "http://127.0.0.1:3000/", nil)
		must.Do(t, err)
		res, err := roundTripper{newStarts()}.RoundTrip(r)
		must.Do(t, err)
		must.Do(t, patience.Receive(t, "the end of the answer", sent))
		u.close()
		body, err := io.ReadAll(res.Body)
		if string(body) != "text" || (err == nil) != whole {
			t.Errorf("%q: got %q and error %v, want it whole: %v", answer, body, err, whole)
		}
		must.Do(t, res.Body.Close())
	}
}

// TestBoundRequests checks that a request ends with its spell, and that its handler is then aborted. A
// request that was served ends without that.
func TestBoundRequests(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{true, false} {
		u := newUpstream(Sandbox{ID: id}, nil)
		s := u.spell()
		r, unbind := s.bind(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		must.Do(t, r.Context().Err())
		if cut {
			s.end()
			patience.Receive(t, "the end of the request", r.Context().Done())
		}
		aborted := func() (reason any) {
			defer func() { reason = recover() }()
			unbind()
			return nil
		}()
		if (aborted == http.ErrAbortHandler) != cut || r.Context().Err() == nil { //nolint:errorlint // a panic, and the very value that net/http compares
			t.Errorf("cut off %v: the handler ended with %v, the context with %v", cut, aborted, r.Context().Err())
		}
		u.close()
	}
}

// TestSilentHandshake checks that a port of https on which nobody answers does not hold a request for
// longer than ten seconds.
func TestSilentHandshake(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]func(*spell) *http.Transport{
		"own": func(s *spell) *http.Transport { return s.own }, "user": func(s *spell) *http.Transport { return s.user }, "gRPC": func(s *spell) *http.Transport { return s.user2 },
	} {
		synctest.Test(t, func(t *testing.T) {
			u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
				near, far := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, far) }()
				return near, nil
			}}, nil)
			defer u.close()
			ctx, giveUp := context.WithTimeout(t.Context(), time.Hour)
			defer giveUp()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:3000/", nil)
			must.Do(t, err)
			began := time.Now()
			res, err := pool(u.spell()).RoundTrip(r)
			if err == nil {
				_ = res.Body.Close()
			}
			if took := time.Since(began); err == nil || took != 10*time.Second {
				t.Errorf("%s: got error %v after %v, want one after 10s", name, err, took)
			}
		})
	}
}

// broken is a hash that cannot be copied.
type broken struct{ hash.Hash }

func (broken) Clone() (hash.Cloner, error) { return nil, errors.ErrUnsupported }

// TestUncheckedSignature checks that a signature that cannot be computed belongs to no sandbox.
func TestUncheckedSignature(t *testing.T) {
	t.Parallel()
	s := &signed{begun: []hash.Cloner{broken{}}}
	if s.signedBy(token) {
		t.Error("the signature counts as valid")
	}
}
