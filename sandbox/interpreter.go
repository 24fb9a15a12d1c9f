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
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// codeRunner runs code in a sandbox's kernels.
type codeRunner struct {
	sb     *Sandbox
	dialer *websocket.Dialer
	envs   map[string]string // of the sandbox; nil when this handle does not know them

	silence, pause, again time.Duration // maxSilence, interruptPause and answerAgain
	moment, grace         time.Duration // cancelGrace and kernelconn.LimitGrace

	opening chan struct{} // held by the call that opens a connection or looks up a context

	mu        sync.Mutex
	transport CodeTransport
	kernels   map[string]*kernel  // by context
	defaults  map[string]string   // context by language
	languages map[string]string   // by context
	beside    map[string]struct{} // contexts that were created on request: no language's default
	dead      map[string]deadContext
	replaced  map[string]bool         // by context: its kernel ended, and no connection was opened since
	lost      map[string]string       // why variables were lost between calls, by what lossOf returns
	requests  map[string]*requestTurn // over HTTP, by context or language

	overtake, begin time.Duration // interruptOvertake and beginPatience
}

func newCodeRunner(sb *Sandbox, cfg sandboxConfig) *codeRunner {
	r := &codeRunner{
		sb: sb, transport: cfg.code, dialer: newDialer(sb.client.http.Transport),
		silence: maxSilence, pause: interruptPause, again: answerAgain, moment: cancelGrace, grace: kernelconn.LimitGrace,
		opening: make(chan struct{}, 1), kernels: map[string]*kernel{},
		defaults: map[string]string{}, languages: map[string]string{}, beside: map[string]struct{}{},
		dead: map[string]deadContext{}, replaced: map[string]bool{}, lost: map[string]string{},
		requests: map[string]*requestTurn{}, overtake: interruptOvertake, begin: beginPatience,
	}
	if sb.created {
		r.envs = merge(nil, cfg.envs)
	}
	return r
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

// CodeTransport returns the transport that RunCode uses; [CodeTransportAuto]
// until that has been found out.
func (sb *Sandbox) CodeTransport() CodeTransport { return sb.code.way() }

func (r *codeRunner) way() CodeTransport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.transport
}

// choose returns which transport to use, after an attempt to use the websocket
// that ended with err. It decides once, and logs the decision.
func (r *codeRunner) choose(ctx context.Context, err error) CodeTransport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.transport == CodeTransportAuto {
		if err == nil {
			r.transport = CodeTransportWebsocket
		} else if closed(err) {
			r.transport = CodeTransportHTTP
			r.sb.client.api.Logger().InfoContext(ctx, "code runs over HTTP: the kernels' websockets are not to be had", "sandbox", r.sb.ID(), "error", err)
		}
	}
	return r.transport
}

// websocket returns the connection to a context's kernel, or the error that there
// can be none.
func (r *codeRunner) websocket(ctx context.Context, id string) (*kernel, error) {
	if r.way() == CodeTransportHTTP {
		return nil, ErrNeedsWebsocket
	}
	k, err := r.kernel(ctx, id, "")
	r.choose(ctx, err)
	if err != nil && closed(err) {
		return nil, fmt.Errorf("%w: %w", ErrNeedsWebsocket, err)
	}
	return k, err
}

func (r *codeRunner) languageOf(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.languages[id]
}

// lose records that a context has lost its variables when there was no call to
// report it to.
func (r *codeRunner) lose(id, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[r.lossOf(id)] = why
}

// noteEnd records that the kernel of a context ended.
func (r *codeRunner) noteEnd(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaced[id] = true
}

// lossOf returns the key of a context in r.lost: for a default context it is the
// language, because another context may take its place. The caller holds r.mu.
func (r *codeRunner) lossOf(id string) string {
	if language := r.languages[id]; r.defaults[language] == id {
		return language
	}
	return id
}

// restarted returns, once, the error of a context that lost its variables between
// two calls.
func (r *codeRunner) restarted(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := r.lossOf(id)
	why, ok := r.lost[key]
	if !ok {
		return nil
	}
	delete(r.lost, key)
	return fmt.Errorf("%w: %s", ErrKernelRestarted, why)
}

// kill ends the kernel of a context when nothing else could end it. The next call
// finds that there is none, and uses what replaces it.
func (r *codeRunner) kill(ctx context.Context, id, why string) error {
	if err := r.control(ctx, http.MethodDelete, id, ""); err != nil {
		return err
	}
	r.lose(id, why)
	return nil
}

// control asks the kernels' server to do something with a kernel.
func (r *codeRunner) control(ctx context.Context, method, id, verb string) error {
	server := portClient{r.sb, protocol.PortJupyter}
	path := "/api/kernels/" + id + verb
	request, err := server.request(ctx, method, path, nil)
	if err != nil {
		return err
	}
	response, err := server.do(request, httpwait.Limits{Head: restHead})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if response.StatusCode > 299 {
		return api.ResponseError(method, path, response.StatusCode, response.Header, body)
	}
	return nil
}

// close ends all connections.
func (r *codeRunner) close() {
	r.mu.Lock()
	kernels := r.kernels
	r.kernels = map[string]*kernel{}
	r.mu.Unlock()
	for _, k := range kernels {
		k.close()
	}
}

// environment returns that of the sandbox. A handle that did not create the
// sandbox asks envd; the kernel already has what the service itself sets.
func (r *codeRunner) environment(ctx context.Context) map[string]string {
	if r.envs != nil {
		return r.envs
	}
	var envs map[string]string
	daemon := portClient{r.sb, protocol.PortEnvd}
	if err := daemon.json(ctx, http.MethodGet, "/envs", nil, &envs); err != nil {
		r.sb.client.api.Logger().DebugContext(ctx, "the sandbox's environment is not known", "sandbox", r.sb.ID(), "error", err)
		return nil
	}
	for name := range envs {
		if strings.HasPrefix(name, "E2B_") || name == "PATH" {
			delete(envs, name)
		}
	}
	return envs
}

const (
	// defaultLanguage is the language of code when none is named.
	defaultLanguage = "python"
	// defaultContext is the service's other name for the first context of that
	// language.
	defaultContext = "default"
)

// normalLanguage returns the service's name of a language.
func normalLanguage(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return name
}

// lookup returns the context to use: the one named, or the first one of the
// language, which is created if there is none.
func (r *codeRunner) lookup(ctx context.Context, id, language string) (string, error) {
	if id == defaultContext {
		id = ""
	}
	if language == "" {
		language = defaultLanguage
	}
	r.mu.Lock()
	id, language = r.heirOf(id, language)
	known := r.defaults[language]
	_, named := r.languages[id]
	r.mu.Unlock()
	switch {
	case id != "" && named:
		return id, nil
	case id == "" && known != "":
		return known, nil
	}
	contexts, err := r.contexts(ctx)
	if err != nil {
		return "", fmt.Errorf("list contexts: %w", err)
	}
	r.mu.Lock()
	for _, c := range contexts {
		r.languages[c.ID] = c.Language
		if _, beside := r.beside[c.ID]; !beside && r.defaults[c.Language] == "" {
			r.defaults[c.Language] = c.ID
		}
	}
	known = r.defaults[language]
	_, named = r.languages[id]
	r.mu.Unlock()
	switch {
	case id != "" && !named:
		return r.replace(ctx, id)
	case id != "":
		return id, nil
	case known != "":
		return known, nil
	}
	made, err := r.create(ctx, CodeContext{Language: language})
	if err != nil {
		return "", fmt.Errorf("create a context for %s: %w", clip.Text(language, 64), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.defaults[language] = made.ID
	return made.ID, nil
}

// validContext refuses an id that would change the path of a request.
func validContext(id string) bool {
	return id != "" && len(id) <= 128 && url.PathEscape(id) == id && id != "." && id != ".."
}

// maxLookups is how many contexts that turn out to have no kernel are tried for a
// call: the known one may be gone, and the next may be dead.
const maxLookups = 3

// exclusively waits until no other call opens a connection or looks up a context.
func (r *codeRunner) exclusively(ctx context.Context) (release func(), err error) {
	select {
	case r.opening <- struct{}{}:
		return func() { <-r.opening }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// kernel returns the connection to a context's kernel, and opens it if there is
// none. A default context without a kernel is replaced.
func (r *codeRunner) kernel(ctx context.Context, id, language string) (*kernel, error) {
	release, err := r.exclusively(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	for range maxLookups {
		at, err := r.lookup(ctx, id, language)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		k := r.kernels[at]
		r.mu.Unlock()
		if k != nil {
			select {
			case <-k.done:
				k.close()
			default:
				return k, nil
			}
		}
		session := jupyter.NewID()
		conn, err := r.dial(ctx, at, session)
		if err == nil {
			r.mu.Lock()
			k = newKernel(r, at, session, conn, r.replaced[at])
			delete(r.replaced, at)
			r.kernels[at] = k
			r.mu.Unlock()
			return k, nil
		}
		if refused, ok := errors.AsType[*jupyter.DialError](err); !ok || refused.StatusCode != http.StatusNotFound {
			return nil, err
		}
		if found, why := r.bury(ctx); why != nil {
			return nil, why
		} else if !found {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the sandbox has lost the kernels of %d contexts, one after the other: %w", maxLookups, api.ErrRetryable)
}

// dial opens a websocket to a kernel. The server sends what it kept for the
// session since the session's last websocket was cut.
func (r *codeRunner) dial(ctx context.Context, id, session string) (*jupyter.Conn, error) {
	server := portClient{r.sb, protocol.PortJupyter}
	address := "ws" + strings.TrimPrefix(r.sb.baseURL(protocol.PortJupyter), "http") + "/api/kernels/" + id + "/channels?session_id=" + session
	header := http.Header{}
	server.header(header)
	conn, err := jupyter.Dial(ctx, r.dialer, address, header)
	if err != nil {
		if refused, ok := errors.AsType[*jupyter.DialError](err); ok && refused.StatusCode == http.StatusBadGateway {
			if routed := server.routed(refused.Body); routed != nil {
				return nil, routed
			}
		} else if !ok {
			err = api.NewError(http.MethodGet, "/api/kernels/"+id+"/channels", err)
		}
		return nil, err
	}
	return conn, nil
}

// open returns the connection to the default context of a language, if there is
// one.
func (r *codeRunner) open(language string) *kernel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kernels[r.defaults[language]]
}

// closed reports whether an error means that this sandbox has no websocket,
// rather than that something failed.
func closed(err error) bool {
	if _, ok := errors.AsType[*portClosedError](err); ok {
		return true
	}
	refused, ok := errors.AsType[*jupyter.DialError](err)
	return ok && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden || refused.StatusCode == http.StatusNotFound)
}

// json makes a request with a JSON answer.
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
	if response.StatusCode != http.StatusOK {
		return api.ResponseError(method, path, response.StatusCode, response.Header, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not the JSON expected: %w", method, path, err)
	}
	return nil
}
