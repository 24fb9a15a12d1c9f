package sandbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// codeServer carries the requests of kernels.
type codeServer struct{ r *codeRunner }

func (s codeServer) JSON(ctx context.Context, port int, method, path string, in, out any) error {
	return portClient{s.r.sb, port}.json(ctx, method, path, in, out)
}

func (s codeServer) Dial(ctx context.Context, path string) (*jupyter.Conn, error) {
	server := portClient{s.r.sb, protocol.PortJupyter}
	header := http.Header{}
	server.header(header)
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
	return conn, nil
}

func (s codeServer) Gone(err error) bool { return errors.Is(err, ErrGone) }

// Prime makes the interpreter set the sandbox's environment, which it does with
// the first code that it runs in a context: how depends on the language.
func (s codeServer) Prime(ctx context.Context, contextID string) error {
	nothing := &RunCodeParams{Context: contextID}
	_, err := s.r.overHTTP(ctx, "", nothing, newCollector(nothing))
	return err
}

// newDialer dials in the same way as the transport, as far as its settings are
// visible.
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
	d.TLSClientConfig.NextProtos = []string{"http/1.1"} // a websocket upgrades nothing newer
	return d
}

// json makes a request with a JSON answer. If out is nil, any answer with a status
// below 300 will do.
func (p portClient) json(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	r, err := p.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := p.do(r, httpwait.Limits{Head: restHead})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return api.NewError(method, path, err)
	}
	switch {
	case out == nil && response.StatusCode < 300:
		return nil
	case response.StatusCode != http.StatusOK:
		return api.ResponseError(method, path, response.StatusCode, response.Header, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not the JSON expected: %w", method, path, err)
	}
	return nil
}
