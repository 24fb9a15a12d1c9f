package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/patience"
)

// A request whose connection cannot be opened because its sandbox is removed meanwhile is told
// so, whatever the error.
func TestRemovedWhileDialling(t *testing.T) {
	t.Parallel()
	for _, err := range []error{ErrGone, ErrPortClosed, ErrNoPorts, ErrTooMany, errors.New("no descriptor left"), net.ErrClosed} {
		rt := New(Options{Ended: func(string) string { return "it was killed" }})
		rt.pauses = nil
		rt.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
			rt.Remove(id)
			return nil, err
		}})
		if w := request(t, rt, "GET", "/", by(id, "3000")); w.Code != 502 || !strings.Contains(w.Body.String(), `"reason":"it was killed"`) {
			t.Errorf("%v: got %d %s, want 502 and why it ended", err, w.Code, w.Body)
		}
	}
}

// A request whose connection broke because the sandbox ended is told so, and one whose server
// alone ended is told that the connection broke.
func TestBrokenByTheEnd(t *testing.T) {
	t.Parallel()
	for ended, want := range map[bool]int{true: http.StatusBadGateway, false: http.StatusServiceUnavailable} {
		var over atomic.Bool
		dial := serve(t, map[int]http.HandlerFunc{49983: func(http.ResponseWriter, *http.Request) {
			over.Store(ended)
			panic(http.ErrAbortHandler) // cuts the connection
		}})
		c := start(t)
		var into opened
		dial = into.dial(dial)
		c.Add(Sandbox{ID: id, Dial: func(ctx context.Context, port int) (net.Conn, error) {
			if over.Load() {
				return nil, ErrGone
			}
			return dial(ctx, port)
		}})
		r, err := http.NewRequestWithContext(t.Context(), "POST", c.url+"/process.Process/Start", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range by(id, "49983") {
			r.Header.Set(name, value)
		}
		transport := &http.Transport{}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("the sandbox ended: %v: got %d, want %d", ended, response.StatusCode, want)
		}
		transport.CloseIdleConnections()
		patience.Until(t, "no connection into the sandbox is open", func() bool { return into.Load() == 0 })
	}
}
