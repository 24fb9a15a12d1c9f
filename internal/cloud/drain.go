package cloud

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// Drain waits until all requests have ended, or until ctx ends, and returns the number of requests
// that still run. Requests include open streams and upgraded connections. From now on, the cloud
// answers new requests with 503 and Retry-After, also on connections that were kept open, and then
// closes their connections. /readyz reports that the cloud is ending. The caller must close the cloud
// afterwards.
func (c *Cloud) Drain(ctx context.Context) int {
	select {
	case <-c.handlers.stop(false):
	case <-ctx.Done():
	}
	return c.handlers.count()
}

// handlers counts the running HTTP handlers, so that Drain and Close can wait for them. Closing the
// HTTP server only closes their connections.
type handlers struct {
	mu      sync.Mutex
	running int
	empty   chan struct{} // closed when the last handler has ended; nil: new requests are accepted
	closed  bool          // new requests get no answer
}

func (h *handlers) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		switch {
		case h.closed:
			h.mu.Unlock()
			panic(http.ErrAbortHandler)
		case h.empty != nil:
			h.mu.Unlock()
			refuseDrained(w)
			return
		}
		h.running++
		h.mu.Unlock()
		defer h.end()
		next.ServeHTTP(w, r)
	})
}

// end records that a handler has ended.
func (h *handlers) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	if h.running == 0 && h.empty != nil {
		close(h.empty)
	}
}

// stop makes handlers refuse new requests, with an answer unless closed is set. It returns a channel
// that is closed when the running requests have ended.
func (h *handlers) stop(closed bool) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = h.closed || closed
	if h.empty == nil {
		h.empty = make(chan struct{})
		if h.running == 0 {
			close(h.empty)
		}
	}
	return h.empty
}

// stopped reports whether handlers refuse new requests.
func (h *handlers) stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.empty != nil
}

func (h *handlers) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// refuseDrained refuses a request because the server is ending. "Connection: close" makes the HTTP
// server close a connection of HTTP/1, and announce the end of a connection of HTTP/2 (GOAWAY). Streams
// on that connection continue. Clients then send their next request to another server, or to the next one
// at this address.
func refuseDrained(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Retry-After", "1")
	header.Set("Connection", "close")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, `{"code":503,"message":"The server is ending and accepts no new requests: repeat the request on a new connection"}`+"\n")
}
