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

// Handler returns a reverse proxy to a port of a sandbox, remote or local, over
// [Sandbox.Transport]. It serves any number of requests at once. It streams the bodies of requests
// and answers, and forwards each piece at once. Websockets and other upgrades work; on a service
// with HTTP/2, only websockets work. Paths, queries and cookies are unchanged. The headers
// X-Forwarded-For, -Host and -Proto describe the client to the server in the sandbox. A redirect to
// the port's address, inside or outside the sandbox, becomes a redirect to a path, so that it leads
// to the handler again.
//
// Anyone who can reach the handler can reach the port with this handle's tokens. Authorize the
// clients of the handler, above all for E2B's own ports (49983, 49999, 8888). The handler itself
// never puts the sandbox's id or tokens into an answer. But the server in the sandbox may receive
// the id and the token of [WithPrivateTraffic] in headers, and may put them into an answer.
//
// If the sandbox does not answer, the status is 502 with a line of text, and the logger of
// [WithLogger] receives the reason. After Close of the sandbox's handle every answer is such a
// 502. The handler need not be closed.
//
//	http.Handle("/", sb.Handler(3000))
func (sb *Sandbox) Handler(port int) http.Handler {
	inside := net.JoinHostPort("localhost", strconv.Itoa(port))
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", inside, inside
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged, so that the server interprets it
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
			if r.Context().Err() == nil { // otherwise the client is gone
				sb.client.api.Logger().WarnContext(r.Context(), "a request was not passed on", "sandbox", sb.ID(), "port", port, "error", err)
			}
			http.Error(w, text, http.StatusBadGateway)
		},
	}
}

// redirectHere changes a redirect to the port's address to a redirect to a path.
func (sb *Sandbox) redirectHere(header http.Header, port int) {
	to, err := url.Parse(header.Get("Location"))
	if err != nil || !sb.isPort(to, port) {
		return
	}
	to.Scheme, to.Host, to.User = "", "", nil
	to.Path = "/" + strings.TrimLeft(to.Path, "/") // two slashes would begin a host name
	header.Set("Location", to.String())
}
