//go:build linux

package e2e

import (
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

// relay passes connections on until they are cut.
type relay struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, to: target.Host, conns: map[net.Conn]struct{}{}}
	r.work.Go(r.serve)
	t.Cleanup(func() {
		listener.Close()
		r.cut()
		r.work.Wait()
	})
	return r
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

func (r *relay) serve() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		to, err := dialer.Dial("tcp", r.to)
		if err != nil {
			from.Close()
			continue
		}
		r.mu.Lock()
		r.conns[from], r.conns[to] = struct{}{}, struct{}{}
		r.mu.Unlock()
		for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
			r.work.Go(func() {
				_, _ = io.Copy(ends[0], ends[1])
				ends[0].Close()
			})
		}
	}
}

// cut ends all connections; new ones are still passed on.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

// onWrite calls a function when a byte arrives.
type onWrite struct {
	once sync.Once
	do   func()
	out  strings.Builder
}

func (w *onWrite) Write(p []byte) (int, error) {
	w.once.Do(w.do)
	return w.out.Write(p)
}

// However the connection is cut during a call, code runs once, and its output
// is either complete or reported as incomplete.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, cloud.URL())
			testConnectionCut(t, r, cloud.Create(t, sandbox.WithSandboxURL(r.url()), sandbox.WithCodeTransport(transport)))
		})
	}
}

func testConnectionCut(t *testing.T, r *relay, sb *sandbox.Sandbox) {
	evaluate(t, sb, "n = 0")
	const lines = 200
	for i := range 10 {
		w := &onWrite{do: r.cut}
		execution, err := sb.RunCode(t.Context(), "n += 1\nimport time\nfor i in range(200):\n  print(i, flush=True)\n  time.sleep(0.001)\nn", &sandbox.RunCodeParams{Stdout: w})
		if err != nil && !errors.Is(err, sandbox.ErrKernelLost) {
			t.Errorf("%d: %v", i, err)
		}
		if got := strings.Count(w.out.String(), "\n"); got > lines || err == nil && got != lines {
			t.Errorf("%d: %d lines came, %v, want %d, or less and an error", i, got, err, lines)
		}
		if execution == nil {
			t.Errorf("%d: no execution came with %v", i, err)
		}
		if err != nil && sb.CodeTransport() == sandbox.CodeTransportWebsocket {
			t.Errorf("%d: the session was not resumed: %v", i, err)
		}
	}
	if got := evaluate(t, sb, "n"); got != "10" {
		t.Errorf("10 calls ran %s times, want %q", got, "10")
	}
}
