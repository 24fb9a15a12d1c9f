package edge

import (
	"io"
	"net/http"
	"testing"

	"github.com/e2bctl/e2bctl/internal/memtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Each request to a port has a connection of its own, whose buffers once took 64 KB. Client and server
// of the test are counted, too, and the buffers that the race detector makes pools forget.
func TestPortRequestsAllocateLittle(t *testing.T) {
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{3000: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }})})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
	must.Do(t, err)
	request.Header = http.Header{"E2b-Sandbox-Id": {id}, "E2b-Sandbox-Port": {"3000"}}
	send := func(n int) {
		for range n {
			answer, err := transport.RoundTrip(request)
			must.Do(t, err)
			_, err = io.Copy(io.Discard, answer.Body)
			must.Do(t, err)
			must.Do(t, answer.Body.Close())
		}
	}
	send(10) // fills the pools
	const n = 200
	got := memtest.Allocated(func() { send(n) }) / n
	t.Logf("%d bytes for each request", got)
	if got > 60_000 {
		t.Errorf("a request to a port takes %d bytes, want at most 60,000", got)
	}
}
