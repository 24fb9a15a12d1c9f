package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// DefaultTemplate is the template of [Create] without [WithTemplate]. It has Python and
	// supports RunCode.
	DefaultTemplate = "code-interpreter-v1"
	// DefaultLifetime is the lifetime of a sandbox without [WithExpiry]. If a program ends
	// without closing a sandbox with a lease, the sandbox lives for at most this time.
	DefaultLifetime = api.DefaultLifetime

	// minLease is the shortest lease. A lease of this length leaves time to retry a failed renewal.
	// minLease is also the shortest extension that services accept.
	minLease = 15 * time.Second
)

type config struct {
	client       []api.Option
	clientOption string // the name of the first ClientOption, for the error
	interceptors []connect.Interceptor
	trace        Trace
	sandboxConfig
}

// sandboxConfig is the configuration for creating or connecting to one sandbox.
type sandboxConfig struct {
	template       string
	templateAsked  bool // set by WithTemplate
	image          string
	resources      Resources
	expiry         Expiry
	expiryAsked    bool   // set by WithExpiry
	uniqueLabel    string // the value of api.CreateParams.UniqueLabel
	inherits       bool   // set for a fork: Then, Resume and Idle are those of the original, not those of expiry
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
	mcp            map[string]any // never changed after it was set
	pipCredentials bool
	index          *PackageIndex
	wheels         *wheelCache
	code           CodeTransport
}

// Key is an API key or another secret of the caller. The type keeps it out of logs and JSON.
type Key = api.Key

// WithAPIKey sets the API key. The default is E2B_API_KEY.
func WithAPIKey(key Key) ClientOption { return ofAPI("WithAPIKey", api.WithAPIKey(key)) }

// WithAPIURL sets the address of the control plane. The default is E2B_API_URL, or depends on
// the domain.
func WithAPIURL(url string) ClientOption { return ofAPI("WithAPIURL", api.WithBaseURL(url)) }

// WithDomain sets the service's domain. The default is E2B_DOMAIN, or else e2b.app.
func WithDomain(domain string) ClientOption { return ofAPI("WithDomain", api.WithDomain(domain)) }

// WithSandboxURL sets one address for all ports of all sandboxes. The default is
// E2B_SANDBOX_URL, or depends on the domain.
func WithSandboxURL(url string) ClientOption {
	return ofAPI("WithSandboxURL", api.WithSandboxURL(url))
}

// WithEnvFile names the file of settings to read instead of .env; it must exist.
// An empty path means that no file is read. See [api.FromEnv].
func WithEnvFile(path string) ClientOption { return ofAPI("WithEnvFile", api.WithEnvFile(path)) }

// WithTransport sets the transport for all requests. The caller continues to own the transport:
// Close does not close it. If t is an [*http.Transport], the websockets of RunCode use its proxy,
// TLS and dial settings. Otherwise these websockets use the default settings.
func WithTransport(t http.RoundTripper) ClientOption {
	return ofAPI("WithTransport", api.WithTransport(t))
}

// WithDialContext sets the function that opens connections, including websockets. Use it for
// services behind a tunnel or a socket. WithDialContext has no effect with [WithTransport].
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) ClientOption {
	return ofAPI("WithDialContext", api.WithDialContext(dial))
}

// WithLogger sets the logger of the client. The logger never receives secrets. By default the
// client logs only panics of tools, to [slog.Default].
func WithLogger(l *slog.Logger) ClientOption { return ofAPI("WithLogger", api.WithLogger(l)) }

// WithMaxRetries sets the number of retries of a failed call to the control plane. Only calls that
// can safely be repeated are retried. The default is 3. Commands and code are never repeated.
func WithMaxRetries(n int) ClientOption { return ofAPI("WithMaxRetries", api.WithMaxRetries(n)) }

// WithUserAgent puts a product, such as "mytool/1.2", in front of the
// User-Agent.
func WithUserAgent(product string) ClientOption {
	return ofAPI("WithUserAgent", api.WithUserAgent(product))
}

// WithInterceptors adds interceptors to the RPCs to envd, the daemon in a sandbox, for instance for
// tracing. Their type is that of package connect, so interceptors from other packages can be used.
func WithInterceptors(i ...connect.Interceptor) ClientOption {
	return clientOption(func(c *config) error {
		c.interceptors = append(c.interceptors, i...)
		c.isOfClient("WithInterceptors")
		return nil
	})
}

// WithTemplate sets the template of the sandbox: an id or a name, with or without a tag, or the
// id of a [Snapshot]. An empty name means [DefaultTemplate].
func WithTemplate(template string) CreateOption {
	return createOption(func(c *config) error {
		if template != "" {
			c.template, c.templateAsked = template, true
		}
		return nil
	})
}

// WithImage makes the sandbox begin with the files of a container image, such as
// "python:3.12-slim", without a template. The first creation fetches the image, and may take
// minutes. The local cloud keeps the image, and asks the registry about a tag at most once an hour.
// If the registry does not answer, it uses the image that it has. WithTemplate then chooses only the
// engine. An empty reference means no image.
//
// The image needs a shell at /bin/sh for commands, and a Python for code, which can import the
// standard library and the packages of the image. The creation returns
// [errors.ErrUnsupported] if the service is not a local cloud, or if the engine has no images: such
// a service may build a template from the image, with template.FromImage.
func WithImage(reference string) CreateOption {
	return createOption(func(c *config) error { c.image = reference; return nil })
}

// Resources are the resources of one sandbox. A zero field means the default: the template's or the
// service's.
type Resources struct {
	// CPUs is the number of processors that the sandbox can use; 0.5 means half of one.
	CPUs float64
	// MemoryBytes limits the memory.
	MemoryBytes int64
	// DiskBytes limits the bytes of the files that the sandbox writes. It does not depend on
	// MemoryBytes. With the engine room, these files are in memory and count as memory, too.
	DiskBytes int64
}

// invalid reports whether no sandbox can have the resources.
func (r Resources) invalid() bool {
	return !(r.CPUs >= 0) || math.IsInf(r.CPUs, 0) || r.MemoryBytes < 0 || r.DiskBytes < 0
}

// differ reports whether a sandbox has other resources than those that are set in r. Descriptions
// have whole processors and megabytes.
func (r Resources) differ(info *Info) bool {
	cpus, memory, disk := int(math.Ceil(r.CPUs)), r.MemoryBytes>>20, r.DiskBytes>>20
	return cpus > 0 && cpus != info.CPUs || memory > 0 && memory != info.MemoryBytes>>20 || disk > 0 && disk != info.DiskBytes>>20
}

// WithResources sets the resources of the sandbox, in place of those of its template. [Info] has the
// resources of a sandbox, with CPUs rounded up. Forks and snapshots of the sandbox have the same
// resources. [Sandbox.Resize] changes the resources of a running sandbox.
//
// The creation returns [errors.ErrUnsupported] if the service is not a local cloud, or if the engine
// or the machine does not enforce one of the resources. It returns [api.ErrInvalidArgument] for more
// than the machine has, for more than the local cloud allows, and for less than a sandbox needs to
// start.
func WithResources(r Resources) CreateOption {
	return createOption(func(c *config) error {
		if r.invalid() {
			return fmt.Errorf("sandbox: WithResources(%+v): want numbers that are not negative: %w", r, api.ErrInvalidArgument)
		}
		c.resources = r
		return nil
	})
}

// WithMetadata adds labels to the sandbox. List and Reap can filter by labels.
func WithMetadata(metadata map[string]string) CreateOption {
	return createOption(func(c *config) error { c.metadata = merge(c.metadata, metadata); return nil })
}

// WithEnvs adds environment variables for every process and kernel in the sandbox.
func WithEnvs(envs map[string]string) CreateOption {
	return createOption(func(c *config) error { c.envs = merge(c.envs, envs); return nil })
}

// WithInternet sets whether the sandbox can reach the internet. The service's default is true.
func WithInternet(allowed bool) CreateOption {
	return createOption(func(c *config) error { c.internet = &allowed; return nil })
}

// WithPrivateTraffic makes the service refuse requests to the sandbox's ports without the sandbox's
// token. This handle sends the token. Without this option, anyone who knows the sandbox's id can
// run code through port 49999 of the code interpreter, on E2B's service and on a local cloud,
// because the token of a secure sandbox protects only the port of envd.
func WithPrivateTraffic() CreateOption {
	return createOption(func(c *config) error { c.private = true; return nil })
}

// WithHTTPSPorts lists the ports whose servers in the sandbox require TLS. Clients reach these
// ports like any other port. The certificates of the servers are not verified, so self-signed
// certificates work.
func WithHTTPSPorts(ports ...int) CreateOption {
	ports = slices.Clone(ports)
	return createOption(func(c *config) error { c.httpsPorts = ports; return nil })
}

// WithRequestHost sets the Host header that servers in the sandbox receive, for servers that accept
// only one name. ${PORT} in host is replaced by the port, as in "localhost:${PORT}". The original
// host is in X-Forwarded-Host.
func WithRequestHost(host string) CreateOption {
	return createOption(func(c *config) error { c.requestHost = host; return nil })
}

// WithCodeTransport sets the transport of RunCode. By default the handle tries the websocket
// and falls back to HTTP.
func WithCodeTransport(t CodeTransport) HandleOption {
	return handleOption(func(c *config) error {
		if t != CodeTransportAuto && t != CodeTransportWebsocket && t != CodeTransportHTTP {
			return fmt.Errorf("sandbox: WithCodeTransport(%q): unknown", string(t))
		}
		c.code = t
		return nil
	})
}

// merge returns a new map with the entries of a and b. It does not change the given maps, so that
// options can be used more than once.
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
