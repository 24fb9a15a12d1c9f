package edge

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/patience"
)

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
