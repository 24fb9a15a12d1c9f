package edge

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// IsPublicName reports whether a host name is the name of a sandbox's port below the cloud's
// domain. The sandbox need not exist. IsPublicName returns false for names of the API.
func (rt *Router) IsPublicName(host string) bool {
	label, below, _ := strings.Cut(host, ".")
	return rt.domain != "" && below == rt.domain && findLabel(label).kind == forSandbox
}

// ServePeer answers a request from a sandbox on a connection that the sandbox dialled to a
// public name. It serves only this name and port, so that the sandbox's network rules for names
// apply to each request. It refuses the port number on which the cloud itself listens: inside a
// sandbox, a relay listens on this port, and would send the request to ServePeer again.
//
// If the target sandbox has no access token, ServePeer refuses requests to its own ports. These
// ports can start programs, and every other sandbox could use them.
func (rt *Router) ServePeer(w http.ResponseWriter, r *http.Request, name string, port uint16) {
	to := find(r, rt.domain, rt.options.Hosts...)
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

// isAt reports whether the Host of a request has the given name and port. A Host without a port
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
