package image

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// counted is a connection that counts while it is open.
type counted struct {
	net.Conn
	ends func()
}

func (c counted) Close() error {
	c.ends()
	return c.Conn.Close()
}

// TestCloseEndsConnections checks that a closed puller has no connection to a registry, of any kind.
func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var open atomic.Int64
	all := w.remote.transport
	for _, one := range []*http.Transport{all.secure, all.lax, all.outside} {
		one.DialContext = func(ctx context.Context, to, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, to, address)
			open.Add(1)
			return counted{conn, sync.OnceFunc(func() { open.Add(-1) })}, err
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.registry.URL+"/v2/", nil)
		must.Do(t, err)
		res, err := one.RoundTrip(r)
		must.Do(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		must.Do(t, err)
		must.Do(t, res.Body.Close())
	}
	if n := open.Load(); n != 3 {
		t.Errorf("%d connections are kept for the next image, want 3", n)
	}
	if w.Close(); open.Load() != 0 {
		t.Errorf("%d connections are left, want none", open.Load())
	}
}

// TestTransports checks the bounds of the connections to registries of every kind.
func TestTransports(t *testing.T) {
	t.Parallel()
	r, err := newRegistries(Options{})
	must.Do(t, err)
	for name, one := range map[string]*http.Transport{"secure": r.transport.secure, "lax": r.transport.lax, "outside": r.transport.outside} {
		got := []any{one.ResponseHeaderTimeout, one.MaxIdleConns, one.MaxIdleConnsPerHost, one.IdleConnTimeout}
		if diff := cmp.Diff([]any{time.Minute, 8, 4, 10 * time.Second}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if lax := one.TLSClientConfig != nil && one.TLSClientConfig.InsecureSkipVerify; lax != (name == "lax") {
			t.Errorf("%s: it needs no certificate: %v", name, lax)
		}
	}
}
