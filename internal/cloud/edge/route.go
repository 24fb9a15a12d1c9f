package edge

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// kind is the kind of a request's destination.
type kind int

const (
	forSandbox   kind = iota // uses route.id and route.port
	forSigned                // a file URL that only its signature routes
	forPreflight             // a browser's preflight request for a signed file URL
	forAPI
	refused // uses route.status and route.reason
)

// route is the destination of a request.
type route struct {
	kind   kind
	id     string
	port   int
	status int
	reason string
	rules  rules // for every answer
}

// find returns the route of a request, by Host and headers only. If another domain resolves to this
// machine, a web page on that domain therefore cannot reach the API.
func find(r *http.Request, domain string, hosts ...string) route {
	// An opaque target has no path to check, but the server that receives it would find one.
	if r.URL.Opaque != "" {
		return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid request target"}
	}
	host := hostname(r.Host)
	shared := host == "localhost" || isIP(host) || slices.Contains(hosts, host)
	if shared || domain != "" && host == "sandbox."+domain {
		if to, ok := findShared(r); ok {
			return to
		}
	}
	if shared || domain != "" && (host == domain || host == "api."+domain) {
		return route{kind: forAPI}
	}
	label, rest, dotted := strings.Cut(host, ".")
	if !dotted || !strings.Contains(label, "-") {
		if domain != "" && rest == domain {
			return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid host"}
		}
		return route{kind: refused, status: http.StatusMisdirectedRequest, reason: messageHost}
	}
	return findLabel(label)
}

// findLabel returns the route for the first label of a host name. The label consists of the port
// and the sandbox id.
func findLabel(label string) route {
	port, id, _ := strings.Cut(label, "-")
	id, _, _ = strings.Cut(id, "-") // old clients append a client id
	return parse(port, id)
}

// findShared returns the route of a request to the shared address. It returns false if the
// request names no sandbox.
func findShared(r *http.Request) (route, bool) {
	id, port := r.Header.Get(protocol.HeaderSandboxID), r.Header.Get(protocol.HeaderSandboxPort)
	routed := id != "" || port != ""
	signed := r.URL.Path == filesPath && r.URL.Query().Has("signature")
	switch {
	case signed && routed && len(r.Header.Values("Origin")) > 0:
		// A page with permission for one URL may try to send it to another sandbox.
		return route{kind: refused, status: http.StatusBadRequest, reason: messageTwice, rules: confined}, true
	case routed && (id == "" || port == ""):
		return route{kind: refused, status: http.StatusBadRequest, reason: "missing header", rules: varied}, true
	case routed:
		to := parse(port, id)
		to.rules = varied
		return to, true
	case signed && len(r.Header.Values("Service-Worker")) > 0:
		return route{kind: refused, status: http.StatusForbidden, reason: messageWorker, rules: confined}, true
	case signed && isPreflight(r):
		return route{kind: forPreflight, rules: confined}, true
	case signed:
		return route{kind: forSigned, port: protocol.PortEnvd, rules: confined}, true
	}
	return route{}, false
}

func parse(port, id string) route {
	if id == "" || strings.ContainsFunc(id, notLowerAlphanumeric) {
		return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid sandbox ID"}
	}
	// As on the service, an impossible port number is treated as a closed port.
	n, err := strconv.ParseUint(port, 10, strconv.IntSize-1)
	if err != nil {
		return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid sandbox port"}
	}
	return route{kind: forSandbox, id: id, port: int(n)}
}

func notLowerAlphanumeric(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }

// hostname returns the host name of a Host header in lower case, without port, brackets and
// final dot.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
