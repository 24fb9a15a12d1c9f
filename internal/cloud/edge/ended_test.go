package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRemovedWhileDialling checks that a request has the answer for a removed sandbox if the
// sandbox is removed while the connection is being opened, whatever error Dial returns.
func TestRemovedWhileDialling(t *testing.T) {
	t.Parallel()
	for _, err := range []error{ErrGone, ErrPortClosed, ErrWithoutPorts, ErrTooMany, errors.New("no descriptor left"), net.ErrClosed} {
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

// TestErrorsOfDial checks that the errors of Dial have different answers: a port that will never
// listen, a port that does not listen now, a sandbox that has ended, and a temporary failure.
func TestErrorsOfDial(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		ErrPortClosed:              `{"sandboxId":"` + id + `","message":"` + messagePortClosed + `","port":3000,"code":502}`,
		ErrWithoutPorts:            `{"sandboxId":"` + id + `","message":"` + messageNoPorts + `","port":3000,"noPorts":true,"code":502}`,
		ErrGone:                    `{"sandboxId":"` + id + `","message":"` + messageNotFound + `","code":502}`,
		ErrTooMany:                 `{"sandboxId":"` + id + `","message":"` + messageTooMany + `","code":429}`,
		errors.New("no room left"): `{"sandboxId":"` + id + `","message":"` + messageBroken + `","port":3000,"code":503}`,
	} {
		rt := New(Options{})
		rt.pauses = nil
		rt.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) { return nil, fmt.Errorf("engine: %w", err) }})
		if w := request(t, rt, "GET", "/", by(id, "3000")); w.Body.String() != want {
			t.Errorf("%v: got %d %s, want %s", err, w.Code, w.Body, want)
		}
		rt.Remove(id)
	}
}

// TestBrokenByTheEnd checks the answer to a request whose connection broke. It reports an ended
// sandbox if the sandbox ended, and a broken connection if only the server in the sandbox ended.
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
		must.Do(t, err)
		for name, value := range by(id, "49983") {
			r.Header.Set(name, value)
		}
		transport := &http.Transport{}
		response, err := transport.RoundTrip(r)
		must.Do(t, err)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("the sandbox ended: %v: got %d, want %d", ended, response.StatusCode, want)
		}
		transport.CloseIdleConnections()
		patience.Until(t, "no connection into the sandbox is open", func() bool { return into.Load() == 0 })
	}
}
