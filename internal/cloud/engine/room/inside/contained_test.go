//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// pod is the bridge of a pod with an envd that only writes a log.
type pod struct {
	guests chan *tunnel.Guest // connected servers
	envd   *Guest
}

func newPod(t *testing.T) *pod {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &pod{guests: make(chan *tunnel.Guest)}
	b := newBridge(func() (*tunnel.Guest, error) {
		select {
		case server := <-p.guests:
			return server, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, func(*tunnel.Guest) bool { return true })
	b.many = true
	bridge, control, err := bridgeEnds()
	must.Do(t, err)
	b.envd = bridge
	p.envd = newGuest(control, 2)
	p.envd.become = func(json.RawMessage) error { return nil }
	var all sync.WaitGroup
	all.Go(func() {
		server, err := b.join()
		if err != nil {
			return
		}
		b.server.Store(server)
		all.Go(func() { _ = b.arrivals(ctx, p.envd) })
		all.Go(func() { _ = b.requests(ctx) })
		if err := p.envd.Ready(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		close(p.envd.Log.lines)
		control.Close()
		all.Wait()
		bridge.Close()
	})
	return p
}

// connect connects a server, and returns it and the lines of the log that it receives.
func (p *pod) connect(t *testing.T) (*tunnel.Server, <-chan string) {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		if server, err := tunnel.NewLink(theirs).Join(); err == nil {
			p.guests <- server
		}
	}()
	lines := make(chan string, 4*maxLines)
	server, err := tunnel.Open(patience.Context(t), ours, tunnel.Options{Tell: func(line []byte) { lines <- string(line) }})
	must.Do(t, err)
	t.Cleanup(server.Close)
	return server, lines
}

// say writes a line to the log of envd.
func (p *pod) say(t *testing.T, line string) {
	t.Helper()
	_, err := p.envd.Log.Write([]byte(line))
	must.Do(t, err)
}

// TestLogOfSeveralServers checks that each server of a pod receives the lines of its log, also while
// another one reads nothing, and after another one is gone.
func TestLogOfSeveralServers(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	first, ofFirst := p.connect(t)
	p.say(t, `"alone"`)
	if got := patience.Receive(t, "a line", ofFirst); got != `"alone"` {
		t.Errorf("the only server received %s", got)
	}
	second, ofSecond := p.connect(t)
	patience.Until(t, "both servers receive a line", func() bool { // the second one does soon after Open
		p.say(t, `"both"`)
		if got := patience.Receive(t, "a line of the first server", ofFirst); got != `"both"` {
			t.Fatalf("the first server received %s", got)
		}
		select {
		case got := <-ofSecond:
			return got == `"both"`
		default:
			return false
		}
	})

	// The first one reads nothing. The second one receives more lines than may wait for the first.
	must.Do(t, first.Park(patience.Context(t)))
	const more = maxLines + 100
	for i := range more {
		line := fmt.Sprintf(`"%d"`, i)
		p.say(t, line)
		for got := ""; got != line; { // earlier ones are still on the way
			got = patience.Receive(t, "a line of the second server", ofSecond)
		}
	}
	must.Do(t, first.GoOn())
	for got := ""; !strings.Contains(got, "lines of this log were dropped"); {
		p.say(t, `"again"`)
		got = patience.Receive(t, "the number of dropped lines", ofFirst)
	}

	second.Close()
	for got := ""; got != `"last"`; {
		p.say(t, `"last"`) // again, because it is dropped while earlier lines wait
		got = patience.Receive(t, "a line after the other server is gone", ofFirst)
	}
}
