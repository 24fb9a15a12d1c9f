package sandbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// codeServer sends the requests of package kernelconn to the sandbox.
type codeServer struct{ r *codeRunner }

func (s codeServer) Do(ctx context.Context, port int, method, path string, body []byte, stream bool) (*http.Response, error) {
	to := portClient{s.r.sb, port}
	r, err := to.request(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if stream {
		return to.Do(r)
	}
	return to.do(r, httpwait.Limits{Head: restHead})
}

func (s codeServer) Dial(ctx context.Context, path string) (*jupyter.Conn, error) {
	server := portClient{s.r.sb, protocol.PortJupyter}
	header := http.Header{}
	server.header(header)
	answered := s.r.sb.asleep.asking()
	conn, err := jupyter.Dial(ctx, s.r.dialer, "ws"+strings.TrimPrefix(s.r.sb.baseURL(protocol.PortJupyter), "http")+path, header)
	if err != nil {
		if refused, ok := errors.AsType[*jupyter.DialError](err); ok && refused.StatusCode == http.StatusBadGateway {
			if routed := server.routed(refused.Body); routed != nil {
				return nil, routed
			}
		} else if !ok {
			path, _, _ = strings.Cut(path, "?")
			err = api.NewError(http.MethodGet, path, err)
		}
		return nil, err
	}
	answered()
	return conn, nil
}

func (s codeServer) Settle(ctx context.Context, made time.Time) (paused bool) {
	if s.r.sb.asleep.wait(ctx) {
		return true
	}
	paused, _ = s.r.sb.pauseSince(ctx, made)
	return paused
}

func (s codeServer) Gone(err error) bool { return errors.Is(err, ErrGone) }

// newDialer returns a dialer with the settings of the transport t. If t is not an [http.Transport],
// newDialer cannot read the settings, and uses defaults.
func newDialer(t http.RoundTripper) *websocket.Dialer {
	d := &websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: 60 * time.Second, ReadBufferSize: 32 << 10, WriteBufferSize: 32 << 10}
	if t, ok := t.(*http.Transport); ok {
		d.Proxy, d.NetDialContext, d.NetDialTLSContext = t.Proxy, t.DialContext, t.DialTLSContext
		if t.TLSClientConfig != nil {
			d.TLSClientConfig = t.TLSClientConfig.Clone()
		}
	}
	if d.TLSClientConfig == nil {
		d.TLSClientConfig = &tls.Config{}
	}
	d.TLSClientConfig.NextProtos = []string{"http/1.1"} // a websocket cannot use a newer version
	return d
}
