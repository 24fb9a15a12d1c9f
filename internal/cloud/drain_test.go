//go:build linux

package cloud

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// stream is the answer of a sandbox that goes on until its test ends it.
type stream struct {
	*http.Response
	finish chan struct{}
}

// openStream opens a stream to a sandbox of s, on a connection of transport.
func (s *served) openStream(transport *http.Transport) stream {
	s.t.Helper()
	box := s.create("/v2/sandboxes", `{"templateID":"base","timeout":300}`)
	finish := make(chan struct{})
	s.fake.boxes[box.SandboxID].daemon.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(flushing{w}, "first\n")
		select {
		case <-finish:
			_, _ = io.WriteString(w, "last\n")
		case <-r.Context().Done():
		}
	})
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL()+"/stream", nil)
	must.Do(s.t, err)
	r.Header.Set("E2b-Sandbox-Id", box.SandboxID)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", box.EnvdAccessToken)
	res, err := transport.RoundTrip(r)
	must.Do(s.t, err)
	s.t.Cleanup(func() { _ = res.Body.Close() })
	return stream{res, finish}
}

// drain calls Drain, and waits until it has begun. The channel receives the number of requests that Drain left.
func (s *served) drain(ctx context.Context) <-chan int {
	left := make(chan int, 1)
	go func() { left <- s.Drain(ctx) }()
	patience.Until(s.t, "the server is not ready", func() bool {
		status, text := s.ofMetrics("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "ending")
	})
	return left
}

// TestDrain checks that a stream under way ends whole, and that new requests are refused on all
// connections, without an effect.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t, nil)
			transport := s.transport()
			transport.ForceAttemptHTTP2 = http2
			stream := s.openStream(transport)
			refused := func(reused bool) {
				t.Helper()
				var got httptrace.GotConnInfo
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { got = i }})
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v2/sandboxes", strings.NewReader(`{"templateID":"base"}`))
				must.Do(t, err)
				r.Header.Set("X-Api-Key", s.key)
				res, err := transport.RoundTrip(r)
				must.Do(t, err)
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				must.Do(t, err)
				if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" || !strings.Contains(string(text), `"code":503`) {
					t.Errorf("got %s, %v and %s, want a refusal with Retry-After", res.Status, res.Header, text)
				}
				if got.Reused != reused {
					t.Errorf("the connection was reused: %v, want %v", got.Reused, reused)
				}
			}
			if !http2 { // the stream has a connection of its own
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/health", nil)
				must.Do(t, err)
				answerOf(t, transport, r)
			}
			left := s.drain(t.Context())
			refused(true)  // on a connection that was kept open
			refused(false) // on a new one, as the refusal closed the other
			if running, _ := s.sandboxes.Count(); running != 1 {
				t.Errorf("there are %d sandboxes, want only the one of the stream", running)
			}
			close(stream.finish)
			if text, err := io.ReadAll(stream.Body); err != nil || string(text) != "first\nlast\n" {
				t.Errorf("got the stream %q, %v, want it whole", text, err)
			}
			if n := patience.Receive(t, "the end of the drain", left); n != 0 {
				t.Errorf("%d requests are left, want none", n)
			}
		})
	}
}

// TestDrainBound checks that a drain ends with its context, and that the requests which are left do not
// keep the cloud from closing.
func TestDrainBound(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	stream := s.openStream(s.transport())
	body := bufio.NewReader(stream.Body)
	first, err := body.ReadString('\n')
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := s.drain(ctx)
	cancel()
	if n := patience.Receive(t, "the end of the drain", left); n != 1 {
		t.Errorf("%d requests are left, want the stream", n)
	}
	must.Do(t, s.Close())
	if rest, err := io.ReadAll(body); err == nil {
		t.Errorf("got the stream %q, which ended without an error, want it cut off", first+string(rest))
	}
}
