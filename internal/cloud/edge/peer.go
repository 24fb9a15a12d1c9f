package edge

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// IsPublicName reports whether a host name is the name of a sandbox's port below the
// cloud's domain, whether the sandbox exists or not. Names of the API are not.
func (rt *Router) IsPublicName(host string) bool {
	label, below, _ := strings.Cut(host, ".")
	return rt.domain != "" && below == rt.domain && findLabel(label).kind == forSandbox
}

// ServePeer answers a request of a sandbox on a connection that the sandbox dialled to a
// public name. It serves only that name and port, so that the sandbox's network rules for
// names hold for each request. It refuses a port of a sandbox with the number of the
// cloud's own port: the sandbox has a relay there, which would send the request here again.
//
// Without an access token, the sandbox's own ports, which can start programs, are not
// served: every other sandbox could use them.
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

// isAt reports whether the Host of a request is a name and port. A Host without a port
// means the default port of the scheme.
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
