package edge

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// IsPublicName reports whether a host name is that of a port of a sandbox below the cloud's
// domain, whether the sandbox exists or not. Those of the API are none.
func (rt *Router) IsPublicName(host string) bool {
	label, below, _ := strings.Cut(host, ".")
	return rt.domain != "" && below == rt.domain && findLabel(label).kind == forSandbox
}

// ServePeer answers a request of a sandbox, which came through a connection that it dialled
// to a public name. Only that name and port are served there, so that the sandbox's network
// rules for names hold for each request. It must not be the port that the cloud serves all
// names at: there the sandbox has a relay, which would send the request here again.
//
// Without an access token, the ports of the sandbox itself, at which programs are started,
// are not served: every other sandbox could use them.
func (rt *Router) ServePeer(w http.ResponseWriter, r *http.Request, name string, port uint16) {
	to := find(r, rt.domain)
	if r.URL.Host != "" || !isAt(r, name, port) || to.kind != forSandbox || to.port == int(port) {
		writeError(w, r, misdirected{Code: http.StatusMisdirectedRequest, Message: messagePeerHost})
		return
	}
	if u := rt.known(to.id); u != nil && u.AccessToken == "" && protocol.OwnPort(to.port) {
		writeError(w, r, sandboxError{SandboxID: to.id, Message: messagePeerOwn, Port: &to.port, Code: http.StatusForbidden})
		return
	}
	rt.ServeHTTP(w, r)
}

// isAt reports whether the Host of a request is a name and port. The port of the scheme may
// be left out.
func isAt(r *http.Request, name string, port uint16) bool {
	_, asked, err := net.SplitHostPort(r.Host)
	if err != nil {
		asked = "80"
		if r.TLS != nil {
			asked = "443"
		}
	}
	return hostname(r.Host) == name && asked == strconv.Itoa(int(port))
}
