package network

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
)

// TestGateWritesNoLog checks that a sandbox cannot fill the log of the cloud with answers that break
// off.
func TestGateWritesNoLog(t *testing.T) {
	t.Parallel()
	g := &gate{egress: &Egress{Dialer: &Dialer{}, Denials: &Denials{}}, ctx: t.Context()}
	for _, shown := range []bool{false, true} {
		if log := g.proxy(shown).ErrorLog; log == nil || log.Writer() == os.Stderr {
			t.Errorf("a gate, name shown: %v, writes to the log of the process", shown)
		}
	}
}

// TestProxyErrorsNameTheirTarget checks that an error of the machine's proxy says to where a connection
// was to lead, and through which proxy, without its password.
func TestProxyErrorsNameTheirTarget(t *testing.T) {
	t.Parallel()
	proxy := &url.URL{Scheme: "ftp", Host: "proxy.test:1", User: url.UserPassword("someone", "sesame")}
	_, err := (&Dialer{}).throughProxy(t.Context(), proxy, "public.test:443", anywhere)
	const want = `network: connect to public.test:443 through the proxy proxy.test:1 of this machine's environment: proxies of the kind "ftp"`
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestDeniedNameIsNotReached checks that a denied name is refused before anything is dialled, on ports
// where connections show their name and on others.
func TestDeniedNameIsNotReached(t *testing.T) {
	t.Parallel()
	for _, port := range []uint16{22, portHTTP, portHTTPS} {
		d := &Dialer{Resolver: world}
		dialled := recording(t, d)
		e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}}
		conn, err := e.dialUnshown(t.Context(), "other.test", port)
		denied, is := errors.AsType[*DeniedError](err)
		if !is || denied.Rule != e.Rules.denial() || denied.Host != "other.test" {
			t.Errorf("port %d: got %v, want the denial of all traffic", port, err)
		}
		if conn != nil || len(*dialled) > 0 {
			t.Errorf("port %d: got %v and dialled %v, want no connection", port, conn, *dialled)
		}
	}
}

// TestClientThatHasGone checks that the end of a connection before its first message is an error.
func TestClientThatHasGone(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	_ = near.Close()
	_ = far.Close()
	for _, port := range []uint16{portHTTP, portHTTPS} {
		if heard, err := listen(t.Context(), near, port); heard == nil || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("port %d: got %v, %v, want the error of the connection", port, heard, err)
		}
	}
	if heard, err := listenAny(t.Context(), near); heard == nil || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, %v, want the error of the connection", heard, err)
	}
}
