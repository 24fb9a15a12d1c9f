package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// DefaultTemplate is what Create starts unless told otherwise: it has
	// Python and serves RunCode.
	DefaultTemplate = "code-interpreter-v1"
	// DefaultLease is how long a sandbox outlives a program that ended without
	// closing it.
	DefaultLease = 5 * time.Minute

	// minLease leaves room for a renewal that fails and is repeated, and is the
	// least that services renew a life by.
	minLease = 15 * time.Second
)

// Option sets one thing of a [Client] or of a sandbox to create. Options that
// are about the client (WithAPIKey to WithUserAgent) are for [NewClient],
// [Create], [Connect] and [Use]; the others may also be given to the methods
// of a Client, and given to NewClient they are the defaults of those. What an
// option sets wins over the environment.
type Option func(*config) error

type config struct {
	client       []api.Option
	clientOption string // the first of them, for the error that names it
	interceptors []connect.Interceptor
	sandboxConfig
}

// sandboxConfig is what one sandbox is made or connected to with.
type sandboxConfig struct {
	template        string
	lifetime, lease time.Duration
	metadata, envs  map[string]string
	internet        *bool
	network         *api.Network
	private         bool
	httpsPorts      []int
	requestHost     string
	pipCredentials  bool
	index           *PackageIndex
	wheels          *wheelCache
	code            CodeTransport
}

func clientOption(name string, o api.Option) Option {
	return func(c *config) error {
		c.client = append(c.client, o)
		if c.clientOption == "" {
			c.clientOption = name
		}
		return nil
	}
}

// WithAPIKey sets the key; without it, E2B_API_KEY decides.
func WithAPIKey(key api.Key) Option { return clientOption("WithAPIKey", api.WithAPIKey(key)) }

// WithAPIURL sets the address of the control plane; without it, E2B_API_URL or
// the domain decides.
func WithAPIURL(url string) Option { return clientOption("WithAPIURL", api.WithBaseURL(url)) }

// WithDomain sets the service's domain; without it, E2B_DOMAIN decides, or it
// is e2b.app.
func WithDomain(domain string) Option { return clientOption("WithDomain", api.WithDomain(domain)) }

// WithSandboxURL sets one address for all ports of all sandboxes; without it,
// E2B_SANDBOX_URL or the domain decides.
func WithSandboxURL(url string) Option {
	return clientOption("WithSandboxURL", api.WithSandboxURL(url))
}

// WithEnvFile names the file of settings to read in place of .env; it must
// exist. An empty path means none. See [api.FromEnv].
func WithEnvFile(path string) Option { return clientOption("WithEnvFile", api.WithEnvFile(path)) }

// WithTransport sets what carries all requests; it stays the caller's. The
// websockets of RunCode use its proxy, TLS and dial settings when it is an
// [*http.Transport], and the defaults otherwise.
func WithTransport(t http.RoundTripper) Option {
	return clientOption("WithTransport", api.WithTransport(t))
}

// WithLogger sets where the client tells what it does, without secrets. The
// default discards all but the panics of tools, which go to [slog.Default] then.
func WithLogger(l *slog.Logger) Option { return clientOption("WithLogger", api.WithLogger(l)) }

// WithRetries sets how often calls to the control plane that may be repeated
// are repeated; the default is 3. Commands and code are never repeated.
func WithRetries(n int) Option { return clientOption("WithRetries", api.WithRetries(n)) }

// WithUserAgent puts a product, such as "mytool/1.2", in front of the
// User-Agent.
func WithUserAgent(product string) Option {
	return clientOption("WithUserAgent", api.WithUserAgent(product))
}

// WithInterceptors adds interceptors of the RPCs to the daemon in a sandbox,
// for tracing. It is an option of the client.
func WithInterceptors(i ...connect.Interceptor) Option {
	return func(c *config) error {
		c.interceptors = append(c.interceptors, i...)
		if c.clientOption == "" {
			c.clientOption = "WithInterceptors"
		}
		return nil
	}
}

// WithTemplate names the template to start: an id or a name, with or without a
// tag. The default is [DefaultTemplate]; an empty name is as if not given.
func WithTemplate(template string) Option {
	return func(c *config) error { c.template = cmp.Or(template, c.template); return nil }
}

// WithLifetime fixes the sandbox's life: it ends after d, rounded up to whole
// seconds, whether or not it is in use. It excludes [WithLease].
func WithLifetime(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("sandbox: WithLifetime(%v): want a positive duration", d)
		}
		c.lifetime = d
		return nil
	}
}

// WithLease sets for how long the sandbox is kept alive at a time: it is
// renewed at half-time while the handle is open, so that the sandbox is gone
// at most d after the program, however that ends. This is the way unless
// [WithLifetime] is given, with [DefaultLease]. The least is 15 seconds.
func WithLease(d time.Duration) Option {
	return func(c *config) error {
		if d < minLease || d > time.Hour {
			return fmt.Errorf("sandbox: WithLease(%v): want %v to %v", d, minLease, time.Hour)
		}
		c.lease = d
		return nil
	}
}

// WithMetadata adds labels to the sandbox, by which List and Reap find it.
func WithMetadata(metadata map[string]string) Option {
	return func(c *config) error { c.metadata = merge(c.metadata, metadata); return nil }
}

// WithEnvs adds to the environment of every process and kernel in the sandbox.
func WithEnvs(envs map[string]string) Option {
	return func(c *config) error { c.envs = merge(c.envs, envs); return nil }
}

// WithInternet says whether the sandbox reaches the internet; the service's
// default is that it does.
func WithInternet(allowed bool) Option {
	return func(c *config) error { c.internet = &allowed; return nil }
}

// WithPrivateTraffic makes the service refuse requests to the sandbox's ports
// that do not carry its token, which this handle sends. Without it,
// anyone who knows the sandbox's id can run code through the code interpreter's
// port 49999, on E2B as on a local cloud: the token of a secure sandbox is for
// the daemon's port alone.
func WithPrivateTraffic() Option {
	return func(c *config) error { c.private = true; return nil }
}

// WithHTTPSPorts names ports whose servers in the sandbox speak TLS themselves.
// From outside they are reached as any other port; their certificates are not
// looked at, so that one they signed themselves will do.
func WithHTTPSPorts(ports ...int) Option {
	ports = slices.Clone(ports)
	return func(c *config) error { c.httpsPorts = ports; return nil }
}

// WithRequestHost sets the Host header that servers in the sandbox are shown, for
// those that accept one name only: "localhost:${PORT}" for instance, where
// ${PORT} stands for the port. They find the one that was asked for in
// X-Forwarded-Host.
func WithRequestHost(host string) Option {
	return func(c *config) error { c.requestHost = host; return nil }
}

// WithCodeTransport sets how RunCode reaches the kernel. The default is to
// find out: websocket, and HTTP where that is closed.
func WithCodeTransport(t CodeTransport) Option {
	return func(c *config) error {
		if t != CodeTransportAuto && t != CodeTransportWebsocket && t != CodeTransportHTTP {
			return fmt.Errorf("sandbox: WithCodeTransport(%q): unknown", string(t))
		}
		c.code = t
		return nil
	}
}

func newConfig(base sandboxConfig, opts []Option) (config, error) {
	c := config{sandboxConfig: base}
	// A life given here replaces one given as a default, of either kind.
	c.lifetime, c.lease = 0, 0
	for _, o := range opts {
		if err := o(&c); err != nil {
			return c, err
		}
	}
	if c.lifetime != 0 && c.lease != 0 {
		return c, errors.New("sandbox: WithLifetime and WithLease exclude each other: a fixed life is not renewed")
	}
	if c.lifetime == 0 && c.lease == 0 {
		c.lifetime, c.lease = base.lifetime, base.lease
	}
	return c, c.checkCredentials()
}

// timeout is what the service is told: how long the sandbox may live from now.
func (c *sandboxConfig) timeout() time.Duration {
	if c.lifetime != 0 {
		return c.lifetime
	}
	return c.lease
}

// merge gives a new map, so that options may be used more than once.
func merge(a, b map[string]string) map[string]string {
	merged := make(map[string]string, len(a)+len(b))
	maps.Copy(merged, a)
	maps.Copy(merged, b)
	return merged
}
