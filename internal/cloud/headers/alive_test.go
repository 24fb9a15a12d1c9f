package headers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// soon runs f, and reports whether f ended within a time that is long for it.
func soon(t *testing.T, f func()) bool {
	t.Helper()
	ctx := patience.Context(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// released fails the test at once if a call has kept a lock.
func released(t *testing.T, call string, mu *sync.Mutex) {
	t.Helper()
	if !mu.TryLock() {
		t.Fatalf("%s keeps the lock", call)
	}
	mu.Unlock()
}

// TestNothingIsKept checks that no call keeps a lock, and no request its place, and that the door serves
// connections and closes. It runs before the tests that would wait for them.
func TestNothingIsKept(t *testing.T) { //nolint:paralleltest // see above
	a, err := NewAuthority("i1")
	must.Do(t, err)
	for range 2 {
		_, err := a.certificate("api.test")
		must.Do(t, err)
		released(t, "certificate", &a.mu)
	}
	broken := errors.New("refused")
	d := New(Options{Authority: a, Secret: func(string) (string, error) { return secret, nil }})
	d.Set(rules(t, bearer), func(context.Context, string, uint16) (net.Conn, error) { return nil, broken })
	for method, want := range map[string]int{http.MethodTrace: http.StatusMethodNotAllowed, http.MethodGet: http.StatusBadGateway} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		r.Host = "api.test"
		r.TLS = httptest.NewRequestWithContext(t.Context(), method, "https://api.test/", nil).TLS
		r.TLS.ServerName = "api.test"
		w := httptest.NewRecorder()
		if d.serve(w, r); w.Code != want || len(d.busy) != 0 {
			t.Fatalf("%s: got %d %s, and %d requests that count as running, want %d and none", method, w.Code, w.Body, len(d.busy), want)
		}
		released(t, "a request", &d.mu)
	}
	near, far := net.Pipe()
	must.Do(t, near.SetDeadline(patience.Deadline()))
	if !soon(t, func() { d.Serve(far) }) {
		t.Fatal("a connection is not served")
	}
	if !soon(t, d.Close) {
		t.Fatal("the door does not close")
	}
	released(t, "Close", &d.mu)
	if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got error %v from a connection of a closed door, want its end", err)
	}
	if d.enter() {
		t.Error("a request is let in after the end")
	}
	released(t, "a request after the end", &d.mu)
	late, inside := net.Pipe()
	if !soon(t, func() { d.Serve(inside) }) {
		t.Fatal("a connection after the end is waited for")
	}
	must.Do(t, errors.Join(near.Close(), late.Close()))
}
