package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestProxyGetsTheShownName checks that a proxy receives the name that a client shows, not the
// address that it chose, and receives the address if the rules allow it.
func TestProxyGetsTheShownName(t *testing.T) {
	t.Parallel()
	for allow, want := range map[string]string{"": "CONNECT 203.0.113.5:443", "203.0.113.9": "CONNECT 203.0.113.9:443"} {
		deny := "10.0.0.0/8"
		if allow != "" {
			deny = allTraffic
		}
		proxy, asked := asking(t, http.StatusForbidden)
		d := &Dialer{Resolver: world, Proxy: func(string) (*url.URL, error) { return proxy, nil }}
		recording(t, d)
		e := &Egress{Dialer: d, Rules: mustRules(t, true, allow, deny), Denials: &Denials{}}
		err := from(t, e, "203.0.113.9:443", false, func(c net.Conn) { _, _ = io.WriteString(c, hello(t, "public.test")) })
		if err == nil {
			t.Errorf("allowed %q: got no error, want one: the proxy refuses", allow)
		}
		if diff := cmp.Diff([]string{want}, asked()); diff != "" {
			t.Errorf("allowed %q: asked of the proxy (-want +got):\n%s", allow, diff)
		}
	}
}

// TestLaterRequestHasADeadline checks that a client of the gate has ten seconds for the rest of a
// request that it has begun, also if it is not the first request.
func TestLaterRequestHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &Dialer{Resolver: world}
		recording(t, d)
		connectBy(t, d, func(ctx context.Context, _ *net.Dialer, _ string) (net.Conn, error) {
			_, near, far := newDuplex(ctx)
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
					fmt.Fprint(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
			return near, nil
		})
		e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}}
		conn, err := e.Dial(t.Context(), "public.test", portHTTP)
		must.Do(t, err)
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: public.test\r\n\r\n")
		from := bufio.NewReader(conn)
		answer, err := http.ReadResponse(from, nil)
		must.Do(t, err)
		_ = answer.Body.Close()
		fmt.Fprint(conn, "GET / HT")
		start := time.Now()
		must.Do(t, conn.SetReadDeadline(start.Add(time.Hour)))
		rest, _ := io.ReadAll(from)
		if took := time.Since(start); took != peekTimeout {
			t.Errorf("the connection ended after %v with %q, want it to end after %v", took, rest, peekTimeout)
		}
	})
}

// TestUnknownAddressesOfThisMachine checks that nothing is judged, asked about or reached while the
// addresses of this machine cannot be listed.
func TestUnknownAddressesOfThisMachine(t *testing.T) {
	t.Parallel()
	failed := errors.New("no list")
	e, _ := askingEgress(t, Policy{}, "", allTraffic)
	e.Dialer.own = func() ([]netip.Addr, error) { return nil, failed }
	if asked, err := e.needsAnswer("203.0.113.9"); asked || !errors.Is(err, failed) {
		t.Errorf("needsAnswer: got %v and error %v, want %v", asked, err, failed)
	}
	if asked, err := e.needsAnswer("public.test"); asked || err == nil {
		t.Errorf("needsAnswer of a name: got %v and error %v, want an error", asked, err)
	}
	for _, host := range []string{"203.0.113.9", "public.test"} {
		if _, err := (&Egress{Dialer: e.Dialer, Denials: &Denials{}}).Dial(t.Context(), host, 443); !errors.Is(err, failed) {
			t.Errorf("%s: got error %v, want %v", host, err, failed)
		}
	}
	restricted := &Egress{Dialer: e.Dialer, Rules: mustRules(t, true, "", "10.0.0.0/8"), Denials: &Denials{}}
	must.Is(t, from(t, restricted, "203.0.113.9:443", false, func(net.Conn) {}), failed)
}
