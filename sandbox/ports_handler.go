package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
)

// Handler returns a handler that passes requests on to a port of the sandbox, remote or
// local, over [Sandbox.Transport]: a reverse proxy for a server of this program, for any
// number of requests at once. Bodies and answers are streamed, each piece is sent on at
// once, and websockets and other upgrades work (on a service with HTTP/2, websockets
// alone). Paths, queries and cookies stay as they are; the server inside is told the
// client in the headers X-Forwarded-For, -Host and -Proto. A redirect that names the port
// by its address inside or outside is made one to a path, which leads to the handler again.
//
// The tokens and the id of the sandbox are in no answer of the handler itself. The server
// inside may receive the id and the token of [WithPrivateTraffic] in headers: one that shows
// the headers of its requests shows those, too. Whoever
// reaches it reaches the port as this handle does, which sends those tokens: check who may
// before, above all for ports of E2B's own (49983, 49999, 8888). Where the sandbox does not
// answer, the answer is status 502 with a line of text, and the reason is in the log of
// [WithLogger]. After Close of the sandbox's handle all answers are that. The handler itself
// needs no closing.
//
//	http.Handle("/", sb.Handler(3000))
func (sb *Sandbox) Handler(port int) http.Handler {
	inside := net.JoinHostPort("localhost", strconv.Itoa(port))
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", inside, inside
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it is, for the server to judge
			r.SetXForwarded()
		},
		Transport:     sb.Transport(port),
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			sb.redirectHere(r.Header, port)
			return nil
		},
		ErrorLog: slog.NewLogLogger(sb.client.api.Logger().Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			text := "The sandbox does not answer."
			if errors.Is(err, ErrPortClosed) {
				text = fmt.Sprintf("Nothing listens on port %d of the sandbox.", port)
			}
			if r.Context().Err() == nil { // else nobody is there who could be told
				sb.client.api.Logger().WarnContext(r.Context(), "a request was not passed on", "sandbox", sb.ID(), "port", port, "error", err)
			}
			http.Error(w, text, http.StatusBadGateway)
		},
	}
}

// redirectHere makes a redirect to the port one to a path.
func (sb *Sandbox) redirectHere(header http.Header, port int) {
	to, err := url.Parse(header.Get("Location"))
	if err != nil || !sb.isPort(to, port) {
		return
	}
	to.Scheme, to.Host, to.User = "", "", nil
	to.Path = "/" + strings.TrimLeft(to.Path, "/") // two slashes would begin a host
	header.Set("Location", to.String())
}
