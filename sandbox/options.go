package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// DefaultTemplate is the template that Create starts unless an option names
	// another: it has Python and supports RunCode.
	DefaultTemplate = "code-interpreter-v1"
	// DefaultLifetime is the lifetime of a sandbox unless [WithExpiry] names another. A
	// sandbox with a lease outlives a program that ended without closing it by at most that.
	DefaultLifetime = api.DefaultLifetime

	// minLease leaves room for a renewal that fails and is repeated, and is the
	// least time by which services extend a life.
	minLease = 15 * time.Second
)

type config struct {
	client       []api.Option
	clientOption string // the first of them, for the error that names it
	interceptors []connect.Interceptor
	trace        Trace
	sandboxConfig
}

// sandboxConfig is the configuration with which one sandbox is created or
// connected to.
type sandboxConfig struct {
	template       string
	templateAsked  bool // by WithTemplate
	expiry         Expiry
	expiryAsked    bool   // by WithExpiry
	uniqueLabel    string // see api.CreateParams
	inherits       bool   // the action at the end of the lifetime is that of another sandbox
	reboot         bool
	metadata, envs map[string]string
	internet       *bool
	network        *api.Egress
	ask            func(ctx context.Context, host string, port int) bool
	private        bool
	httpsPorts     []int
	requestHost    string
	volumes        []VolumeMount
	mounts         []Mount
	mcp            map[string]any // never changed
	pipCredentials bool
	index          *PackageIndex
	wheels         *wheelCache
	code           CodeTransport
}

// Key is an API key or another secret of the caller's, as text. Its type keeps it out of
// logs and JSON.
type Key = api.Key

// WithAPIKey sets the key; without it, E2B_API_KEY is used.
func WithAPIKey(key Key) ClientOption { return ofAPI("WithAPIKey", api.WithAPIKey(key)) }

// WithAPIURL sets the address of the control plane; without it, E2B_API_URL or
// the domain determines it.
func WithAPIURL(url string) ClientOption { return ofAPI("WithAPIURL", api.WithBaseURL(url)) }

// WithDomain sets the service's domain; without it, E2B_DOMAIN is used, or else
// e2b.app.
func WithDomain(domain string) ClientOption { return ofAPI("WithDomain", api.WithDomain(domain)) }

// WithSandboxURL sets one address for all ports of all sandboxes; without it,
// E2B_SANDBOX_URL or the domain determines it.
func WithSandboxURL(url string) ClientOption {
	return ofAPI("WithSandboxURL", api.WithSandboxURL(url))
}

// WithEnvFile names the file of settings to read instead of .env; it must exist.
// An empty path means that no file is read. See [api.FromEnv].
func WithEnvFile(path string) ClientOption { return ofAPI("WithEnvFile", api.WithEnvFile(path)) }

// WithTransport sets the transport that carries all requests; it still belongs to
// the caller. If it is an [*http.Transport], the websockets of RunCode use its
// proxy, TLS and dial settings, otherwise the defaults.
func WithTransport(t http.RoundTripper) ClientOption {
	return ofAPI("WithTransport", api.WithTransport(t))
}

// WithDialContext sets how connections are opened, for services behind a tunnel or a
// socket; websockets are included. It has no effect with [WithTransport].
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) ClientOption {
	return ofAPI("WithDialContext", api.WithDialContext(dial))
}

// WithLogger sets the logger for the client's work. It never gets secrets. By default everything
// is discarded except panics of tools, which then go to [slog.Default].
func WithLogger(l *slog.Logger) ClientOption { return ofAPI("WithLogger", api.WithLogger(l)) }

// WithMaxRetries sets how often a call to the control plane that is safe to repeat
// is repeated; the default is 3. Commands and code are never repeated.
func WithMaxRetries(n int) ClientOption { return ofAPI("WithMaxRetries", api.WithMaxRetries(n)) }

// WithUserAgent puts a product, such as "mytool/1.2", in front of the
// User-Agent.
func WithUserAgent(product string) ClientOption {
	return ofAPI("WithUserAgent", api.WithUserAgent(product))
}

// WithInterceptors adds interceptors to the RPCs to envd, the daemon in a sandbox, for tracing.
// They have the type of package connect, so that interceptors of other packages fit.
func WithInterceptors(i ...connect.Interceptor) ClientOption {
	return clientOption(func(c *config) error {
		c.interceptors = append(c.interceptors, i...)
		c.isOfClient("WithInterceptors")
		return nil
	})
}

// WithTemplate sets the template to start: an id or a name, with or without a
// tag, or the id of a [Snapshot]. The default is [DefaultTemplate]; an empty name
// means the default.
func WithTemplate(template string) CreateOption {
	return createOption(func(c *config) error {
		if template != "" {
			c.template, c.templateAsked = template, true
		}
		return nil
	})
}

// WithMetadata adds labels to the sandbox, by which List and Reap can find it.
func WithMetadata(metadata map[string]string) CreateOption {
	return createOption(func(c *config) error { c.metadata = merge(c.metadata, metadata); return nil })
}

// WithEnvs adds variables to the environment of every process and kernel in the
// sandbox.
func WithEnvs(envs map[string]string) CreateOption {
	return createOption(func(c *config) error { c.envs = merge(c.envs, envs); return nil })
}

// WithInternet sets whether the sandbox can reach the internet; by the service's
// default it can.
func WithInternet(allowed bool) CreateOption {
	return createOption(func(c *config) error { c.internet = &allowed; return nil })
}

// WithPrivateTraffic makes the service refuse requests to the sandbox's ports
// that do not carry its token; this handle sends it. Without this option, anyone
// who knows the sandbox's id can run code through the code interpreter's port
// 49999, on E2B as well as on a local cloud: the token of a secure sandbox
// protects only the port of envd.
func WithPrivateTraffic() CreateOption {
	return createOption(func(c *config) error { c.private = true; return nil })
}

// WithHTTPSPorts names ports whose servers in the sandbox use TLS themselves.
// From outside they are reached like any other port; their certificates are not
// checked, so self-signed ones work.
func WithHTTPSPorts(ports ...int) CreateOption {
	ports = slices.Clone(ports)
	return createOption(func(c *config) error { c.httpsPorts = ports; return nil })
}

// WithRequestHost sets the Host header that servers in the sandbox see, for
// servers that accept only one name: "localhost:${PORT}" for instance, where
// ${PORT} stands for the port. The host that was requested is in
// X-Forwarded-Host.
func WithRequestHost(host string) CreateOption {
	return createOption(func(c *config) error { c.requestHost = host; return nil })
}

// WithCodeTransport sets how RunCode reaches the kernel. By default the handle tries the
// websocket, and uses HTTP where that is not available.
func WithCodeTransport(t CodeTransport) HandleOption {
	return handleOption(func(c *config) error {
		if t != CodeTransportAuto && t != CodeTransportWebsocket && t != CodeTransportHTTP {
			return fmt.Errorf("sandbox: WithCodeTransport(%q): unknown", string(t))
		}
		c.code = t
		return nil
	})
}

// merge returns a new map, so that options may be used more than once.
func merge(a, b map[string]string) map[string]string {
	merged := make(map[string]string, len(a)+len(b))
	maps.Copy(merged, a)
	maps.Copy(merged, b)
	return merged
}

// newConfig returns base with opts applied.
func newConfig[O option](base sandboxConfig, opts []O) (config, error) {
	c := config{sandboxConfig: base}
	c.expiryAsked = false
	if err := applyAll(&c, opts); err != nil {
		return c, err
	}
	return c, c.checkCredentials()
}

// configure returns the configuration of one call: opts applied to the client's defaults.
func configure[O option](c *Client, method string, opts []O) (sandboxConfig, error) {
	cfg, err := newConfig(c.defaults, opts)
	if err == nil {
		err = cfg.refuseClients(method)
	}
	return cfg.sandboxConfig, err
}
