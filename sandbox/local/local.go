package local

import (
	"context"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Cloud is a running cloud. It is safe for concurrent use. Close ends it.
type Cloud struct{ service service }

// service is the cloud of this operating system.
type service interface {
	URL() string
	Domain() string
	Key() string
	Requests() []requestlog.Entry
	Inject(cloud.Fault)
	Advance(time.Duration)
	Done() <-chan struct{}
	Close() error
	report() Report
}

// Report says what the machine gave.
type Report struct {
	Isolation Isolation
	UserIDs   int    // of a sandbox; 1 when root and user are the same id there
	Python    string // path of the interpreter
	// What enforces each limit; "not enforced: …" where nothing does.
	Memory, CPU, Processes, Disk string
	// Egress is how programs inside reach the network: "transparent", or why only
	// those do that use a proxy.
	Egress string
	Notes  []string // what is missing or weaker than it could be, and how to mend it
}

// Request is a request that the cloud answered.
type Request = requestlog.Entry

// Fault is an answer that a request gets instead of its own.
type Fault = cloud.Fault

// Start starts a cloud, which takes tens of milliseconds. ctx bounds the start
// only. Errors: [ErrUnsupported], [ErrNoIsolation], or that no Python is there.
func Start(ctx context.Context, opts ...Option) (*Cloud, error) {
	var s settings
	for _, o := range opts {
		o(&s)
	}
	service, err := start(ctx, s)
	if err != nil {
		return nil, err
	}
	return &Cloud{service}, nil
}

// Options are what makes a client or a sandbox of package sandbox use this
// cloud.
func (c *Cloud) Options() []sandbox.Option {
	return []sandbox.Option{
		sandbox.WithAPIKey(c.APIKey()),
		sandbox.WithAPIURL(c.URL()),
		sandbox.WithSandboxURL(c.URL()),
		sandbox.WithDomain(c.service.Domain()),
	}
}

// Env gives the variables, as "NAME=value", that make any E2B SDK or command
// use this cloud. They include the key.
func (c *Cloud) Env() []string {
	return []string{
		api.EnvAPIKey + "=" + c.service.Key(),
		api.EnvAPIURL + "=" + c.URL(),
		api.EnvSandboxURL + "=" + c.URL(),
		api.EnvDomain + "=" + c.service.Domain(),
	}
}

// URL is the address of the API and of the sandboxes.
func (c *Cloud) URL() string { return c.service.URL() }

// APIKey is the key that the cloud accepts.
func (c *Cloud) APIKey() api.Key { return api.Key(c.service.Key()) }

// Isolation tells how sandboxes are isolated on this machine.
func (c *Cloud) Isolation() Isolation { return c.service.report().Isolation }

// Report tells what this machine gave, and what it did not.
func (c *Cloud) Report() Report { return c.service.report() }

// Requests gives the last 1024 requests that the cloud answered, the oldest
// first: what an SDK really sent, without anything secret.
func (c *Cloud) Requests() []Request { return c.service.Requests() }

// Inject makes a later request fail, for tests.
func (c *Cloud) Inject(f Fault) { c.service.Inject(f) }

// Advance moves the clock of lifetimes forward, for tests: sandboxes whose time
// is over then are gone when it returns.
func (c *Cloud) Advance(d time.Duration) { c.service.Advance(d) }

// Done is closed when something outside ended the sandboxes and there can be
// no more of them. The cloud still has to be closed.
func (c *Cloud) Done() <-chan struct{} { return c.service.Done() }

// Close ends every sandbox and the cloud. Nothing of it is left when it returns nil;
// an error says what could not be ended or removed, such as processes of sandboxes
// that have neither namespaces nor control groups. It is idempotent, and does nothing
// on nil.
func (c *Cloud) Close() error {
	if c == nil {
		return nil
	}
	return c.service.Close()
}
