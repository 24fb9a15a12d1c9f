package local

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Cloud is a running cloud. It is safe for concurrent use. Close ends it.
type Cloud struct {
	service service
	closed  atomic.Bool
}

// service is a cloud, whose types are not those of this package.
type service interface {
	URL() string
	Domain() string
	Key() string
	Requests() []requestlog.Entry
	Inject(cloud.Fault) error
	UnmetFaults() []cloud.Fault
	Advance(time.Duration)
	Done() <-chan struct{}
	Err() error
	Close() error
	report() Report
	engineReport(e Engine) (Report, error)
	trust() []string
}

// Report describes what the machine provides.
type Report struct {
	Engine    Engine // the cloud's own
	Isolation Isolation
	// IsolationNote says why Isolation is less than [Full] although no level was asked for by
	// name: the lacks of sandboxes, the refusals of the machine and the remedies. It is empty
	// otherwise. It is also the first of Notes.
	IsolationNote string
	UserIDs       int    // of a sandbox; 1 when root and user are the same id there
	Python        string // path of the interpreter; empty if there is none
	// PythonNote names the lacks of the Python and their remedies, as in [Python].Note; it is also
	// among Notes.
	PythonNote string
	// Promises are the features of sandboxes, each with why Engine does not have it on this
	// machine. A request for a missing feature is refused with an error that names it.
	Promises []Promise
	// Memory, CPU, Processes and Disk name the means that enforces each limit, or are "not
	// enforced: …" if nothing does.
	Memory, CPU, Processes, Disk string
	// Egress tells how programs inside reach the network: "transparent", or the reason
	// why only programs that use a proxy do.
	Egress string
	// Pause names the means that stop the processes of a sandbox paused with its memory. It also
	// says whether its files and its memory outlast the cloud, which needs [WithStateDir].
	Pause string
	// StateNotes name risks of the state in the directory of [WithStateDir], and damage that was
	// found there; they are also among Notes.
	StateNotes []string
	Notes      []string // missing or weak features of the machine, and how to mend them
}

// Promise says whether an engine has a feature.
type Promise struct {
	Feature string
	Missing string // why the engine does not have it; empty if it does
}

// Start starts a cloud, which takes tens of milliseconds. ctx bounds the start only. Errors
// include [ErrUnsupported] and [ErrNoIsolation]. Where the Python of sandboxes is not the one that
// [Setup] prepares, or the machine's best isolation is less than [Full], Start succeeds and logs a
// warning with a remedy; without any Python, running code fails with an error that says so.
func Start(ctx context.Context, opts ...Option) (*Cloud, error) {
	s := settings{warm: DefaultWarm}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("local: start: option %d is nil: leave it out: %w", i+1, api.ErrInvalidArgument)
		}
		o(&s)
	}
	if s.warm < 0 || s.warm > MaxWarm {
		return nil, fmt.Errorf("local: start: %d sandboxes cannot be kept ready: WithWarm takes 0 to %d", s.warm, MaxWarm)
	}
	service, err := start(ctx, s)
	if err != nil {
		return nil, err
	}
	c := &Cloud{service: service}
	c.warn(ctx, s.logger)
	return c, nil
}

// warn logs what would otherwise be noticed only when something fails in a sandbox.
func (c *Cloud) warn(ctx context.Context, logger *slog.Logger) {
	logger = cmp.Or(logger, slog.Default())
	report := c.Report()
	if report.PythonNote != "" {
		logger.WarnContext(ctx, "the Python of the local cloud is incomplete", "note", report.PythonNote)
	}
	if report.IsolationNote != "" {
		notes := slices.DeleteFunc(slices.Clone(report.Notes), func(note string) bool { return note == report.PythonNote })
		logger.WarnContext(ctx, "the local cloud isolates sandboxes less than fully", "isolation", report.Isolation, "note", strings.Join(notes, "; "))
	}
}

// Option returns the option that makes a client or a sandbox of package sandbox use this
// cloud.
func (c *Cloud) Option() sandbox.ClientOption {
	return sandbox.WithOptions(
		sandbox.WithAPIKey(c.APIKey()),
		sandbox.WithAPIURL(c.URL()),
		sandbox.WithSandboxURL(c.URL()),
		sandbox.WithVolumeURL(c.URL()),
		sandbox.WithDomain(c.service.Domain()),
		sandbox.WithDialContext(c.dial),
	)
}

// dial opens a connection to the cloud. Where it is closed, its port may be refused, or
// be another program's by now.
func (c *Cloud) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.closed.Load() {
		return nil, closedError{c.URL()}
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// closedError is returned by calls after Close of their cloud.
type closedError struct{ url string }

func (e closedError) Error() string {
	return fmt.Sprintf("the local cloud at %s was closed, and its sandboxes ended with it: start another one", e.url)
}

func (e closedError) Is(target error) bool { return target == ErrClosed || target == sandbox.ErrGone }

// Env returns the variables, as "NAME=value", with which any E2B SDK or command
// uses this cloud. They include the key. SDKs prefer E2B_API_URL, E2B_SANDBOX_URL
// and E2B_VOLUME_API_URL, which lead to the cloud's port without TLS.
//
// For https, leave these three out. E2B_API_KEY and E2B_DOMAIN are then enough, with SSL_CERT_FILE,
// REQUESTS_CA_BUNDLE and NODE_EXTRA_CA_CERTS. Their files hold the cloud's certificates and those that
// this process trusts already. The files are gone after Close, unless there is a [WithAuthority].
func (c *Cloud) Env() []string {
	return append([]string{
		api.EnvAPIKey + "=" + c.service.Key(),
		api.EnvAPIURL + "=" + c.URL(),
		api.EnvSandboxURL + "=" + c.URL(),
		api.EnvVolumeURL + "=" + c.URL(),
		api.EnvDomain + "=" + c.service.Domain(),
	}, c.service.trust()...)
}

// URL returns the address of the API and of the sandboxes, without TLS.
func (c *Cloud) URL() string { return c.service.URL() }

// Domain returns the name and port below which the API and the sandboxes are served, with
// and without TLS.
func (c *Cloud) Domain() string { return c.service.Domain() }

// APIKey returns the key that the cloud accepts.
func (c *Cloud) APIKey() api.Key { return api.Key(c.service.Key()) }

// Isolation returns how sandboxes are isolated on this machine.
func (c *Cloud) Isolation() Isolation { return c.service.report().Isolation }

// Report describes the features and the lacks of this machine.
func (c *Cloud) Report() Report { return c.service.report() }

// EngineReport is [Cloud.Report] for any engine, not only the cloud's own, for which Report says
// more. The engine is opened if need be: an error names the features that this machine lacks for
// it. The call takes half a minute at most.
func (c *Cloud) EngineReport(e Engine) (Report, error) { return c.service.engineReport(e) }

// Advance moves the clock of lifetimes forward, for tests: sandboxes whose time
// is then over are gone when it returns.
func (c *Cloud) Advance(d time.Duration) { c.service.Advance(d) }

// Done returns a channel that is closed when the cloud can start no more sandboxes: the
// process that supervises them was killed three times within a minute, or could not be
// started again. A single death ends only the sandboxes that run, and creates wait for the
// next process. The cloud still has to be closed.
func (c *Cloud) Done() <-chan struct{} { return c.service.Done() }

// Err returns why the cloud can start no more sandboxes: nil until the channel of Done is
// closed.
func (c *Cloud) Err() error { return c.service.Err() }

// Close ends every sandbox and the cloud. If it returns nil, nothing of the cloud is left; an
// error names remains that could not be ended or removed, such as processes of sandboxes that have
// neither namespaces nor control groups. Later calls of clients and sandboxes that were made with
// [Cloud.Option] return [ErrClosed]. Close is idempotent, and does nothing on nil.
func (c *Cloud) Close() error {
	if c == nil {
		return nil
	}
	c.closed.Store(true)
	return c.service.Close()
}
