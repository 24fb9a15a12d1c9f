package edge

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// kind says what a request is addressed to.
type kind int

const (
	forSandbox kind = iota // route.id and route.port
	forSigned              // a file URL that can only be routed by its signature
	forAPI
	refused // route.status and route.reason
)

// route is where a request goes.
type route struct {
	kind   kind
	id     string
	port   int
	status int
	reason string
}

// find decides by Host and headers only, so that a web page on another domain
// that resolves to this machine cannot reach the API.
func find(r *http.Request, domain string) route {
	host := hostname(r.Host)
	shared := host == "localhost" || isIP(host) || strings.HasPrefix(host, "sandbox.")
	id, port := r.Header.Get(protocol.HeaderSandboxID), r.Header.Get(protocol.HeaderSandboxPort)
	switch {
	case shared && (id != "" || port != ""):
		if id == "" || port == "" {
			return route{kind: refused, status: http.StatusBadRequest, reason: "missing header"}
		}
		return parse(port, id)
	case shared && r.URL.Path == filesPath && r.URL.Query().Has("signature"):
		return route{kind: forSigned, port: protocol.PortEnvd}
	case host == "localhost", isIP(host), domain != "" && (host == domain || host == "api."+domain):
		return route{kind: forAPI}
	}
	label, rest, dotted := strings.Cut(host, ".")
	port, id, dashed := strings.Cut(label, "-")
	if !dotted || !dashed {
		if shared || domain != "" && rest == domain {
			return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid host"}
		}
		return route{kind: refused, status: http.StatusMisdirectedRequest, reason: messageHost}
	}
	id, _, _ = strings.Cut(id, "-") // old clients append the client id
	return parse(port, id)
}

func parse(port, id string) route {
	if id == "" || strings.ContainsFunc(id, notLowerAlphanumeric) {
		return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid sandbox ID"}
	}
	// As in the service, a number that no port has is a port on which nothing listens.
	n, err := strconv.ParseUint(port, 10, strconv.IntSize-1)
	if err != nil {
		return route{kind: refused, status: http.StatusBadRequest, reason: "Invalid sandbox port"}
	}
	return route{kind: forSandbox, id: id, port: int(n)}
}

func notLowerAlphanumeric(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }

// hostname returns a Host header without port, brackets and final dot, in lower
// case.
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
