package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// hosted lists the domains of services that use one host for all their sandboxes.
var hosted = []string{"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"}

// Host returns the public host name of a port of the sandbox, without a scheme. The name depends on
// the domain of the service, and not on a sandbox URL in the settings. If a sandbox URL is set,
// send requests to that URL instead, with the headers E2b-Sandbox-Id and E2b-Sandbox-Port.
func (sb *Sandbox) Host(port int) string {
	return hostOf(sb.ID(), sb.domain(), port)
}

func hostOf(id, domain string, port int) string { return strconv.Itoa(port) + "-" + id + "." + domain }

func (sb *Sandbox) domain() string {
	if sb.remote.Domain != "" {
		return sb.remote.Domain
	}
	return sb.client.api.Domain()
}

// baseURL returns the address for requests to a port. If one host serves all sandboxes, the
// requests to all sandboxes share one pool of connections.
func (sb *Sandbox) baseURL(port int) string {
	if url := sb.client.api.SandboxURL(); url != "" {
		return url
	}
	if slices.Contains(hosted, sb.domain()) {
		return "https://sandbox." + sb.domain()
	}
	return "https://" + sb.Host(port)
}

// portClient sends requests to one port of the sandbox. It adds the headers that route and
// authorize these requests, and recognizes answers of the service's router.
type portClient struct {
	sb   *Sandbox
	port int
}

// header adds the headers that route and authorize a request.
func (p portClient) header(h http.Header) {
	h.Set(protocol.HeaderSandboxID, p.sb.ID())
	h.Set(protocol.HeaderSandboxPort, strconv.Itoa(p.port))
	h.Set("User-Agent", p.sb.client.api.UserAgent())
	// Servers of users must not receive the token of envd.
	if token := p.sb.remote.AccessToken; token != "" && protocol.OwnPort(p.port) {
		h.Set(protocol.HeaderAccess, string(token))
	}
	if token := p.sb.remote.TrafficToken; token != "" && p.port != protocol.PortEnvd {
		h.Set(protocol.HeaderTraffic, string(token))
	}
}

// restHead bounds the wait for the beginning of an answer. It applies to answers that are read
// completely. The bound is long, because the server inside the sandbox may first have to start a
// kernel, on a busy machine.
const restHead = 5 * time.Minute

// Do sends a request whose answer may have any length. If the sandbox has ended, the error is a
// [*GoneError]. If no program listens on the port, the error is a [*portClosedError]. Do returns
// any other answer to the caller.
func (p portClient) Do(r *http.Request) (*http.Response, error) {
	return p.do(r, httpwait.Limits{Stream: true})
}

// do is like Do, but bounds the time that the answer may take.
func (p portClient) do(r *http.Request, limits httpwait.Limits) (*http.Response, error) {
	// Close is killing the sandbox, so no request is useful; a request would resume a paused
	// one.
	if p.sb.dying.Load() {
		return nil, ErrClosed
	}
	p.sb.client.trace.headers(r.Context(), r.Header)
	p.header(r.Header)
	answered, begun := p.sb.asleep.asking(), time.Now()
	response, err := p.answer(httpwait.Do(p.sb.client.http.Do, r, limits))
	if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrPortClosed) {
		if again, ok := p.repeat(r, begun); ok {
			response, err = p.answer(httpwait.Do(p.sb.client.http.Do, again, limits))
		}
	}
	if err == nil {
		answered()
	}
	return response, err
}

// answer turns an answer of the service's router into an error, as Do describes.
func (p portClient) answer(response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusBadGateway {
		return response, nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err := p.routed(body); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	// The answer comes from the server in the sandbox, and may have any length.
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	return response, nil
}

// routed returns the error in a 502 answer of the service's router. It ignores an answer that
// does not name this sandbox.
func (p portClient) routed(body []byte) error {
	var problem struct {
		SandboxID string `json:"sandboxId"`
		Port      int    `json:"port"`
		NoPorts   bool   `json:"noPorts"`
		Message   string `json:"message"`
	}
	_ = json.Unmarshal(body, &problem) // a body that is not JSON names no sandbox
	if problem.SandboxID != p.sb.ID() {
		return nil
	}
	if problem.Port != 0 {
		closed := &portClosedError{port: problem.Port}
		if problem.NoPorts {
			closed.reason = clip.Line(problem.Message, 256)
		}
		return closed
	}
	return &GoneError{ID: p.sb.ID(), State: GoneKilled, Reason: "the service does not have it any more", At: time.Now()}
}

// request creates a request to the port.
func (p portClient) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.sb.baseURL(p.port)+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	return r, nil
}

// plain makes requests ask for uncompressed answers. A daemon that may use gzip compresses every
// message, even a tiny one. The compression would cost both sides more than the rest of the call.
var plain = connect.WithAcceptCompression("gzip", nil, nil)

// rpcClient sends the requests of the Connect protocol. If another server answers in place of the
// daemon, such as a proxy, the Connect library keeps only a code of the answer. rpcClient keeps the
// whole answer.
type rpcClient struct{ portClient }

func (c rpcClient) Do(r *http.Request) (*http.Response, error) {
	isStream := strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+")
	response, err := c.do(r, httpwait.Limits{Stream: isStream})
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		// Connect would read the rest of an oversized message, which may never end.
		if !isStream {
			response.Body = http.MaxBytesReader(nil, response.Body, maxListing+1)
		}
		return response, nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	_ = response.Body.Close()
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Code == "" {
		return nil, api.ResponseError(r.Method, r.URL.Path, response.StatusCode, response.Header, body)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
