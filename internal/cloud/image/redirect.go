package image

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// dialTimeout bounds the time of a connection attempt, as in [http.DefaultTransport].
const dialTimeout = 30 * time.Second

// redirectedByInternet reports whether a request follows a redirect of a host that is on the internet.
// The targets of such redirects must be on the internet, too. Otherwise any registry could have this
// machine send requests to its own networks. If a proxy sends the request, the proxy decides.
func redirectedByInternet(r *http.Request) bool {
	if r.Response == nil || r.Response.Request == nil {
		return false
	}
	if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy != nil {
		return false
	}
	from := r.Response.Request.URL.Hostname()
	if from == r.URL.Hostname() {
		return false
	}
	if a, err := netip.ParseAddr(from); err == nil {
		return !network.Internal(a)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(r.Context(), "ip", from)
	for _, a := range addresses {
		if network.Internal(a) {
			return false
		}
	}
	return err == nil
}

// dialOutside connects to an address of the internet.
func dialOutside(ctx context.Context, to, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		reached, err := netip.ParseAddrPort(address)
		if err == nil && network.Internal(reached.Addr()) {
			err = fmt.Errorf("a registry of the internet redirects to %s, which is not on the internet", reached.Addr())
		}
		return err
	}}
	return dialer.DialContext(ctx, to, address)
}
