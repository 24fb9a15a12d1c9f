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

// Cloud is a running local cloud. It is safe for concurrent use. Close ends it.
type Cloud struct {
	service service
	closed  atomic.Bool
}

// service is the part of a cloud that this package uses.
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

// Report describes the features of the machine.
type Report struct {
	Engine    Engine // the cloud's default engine
	Isolation Isolation
	// IsolationNote is the reason why Isolation is less than [Full]. It contains the missing
	// protections, the machine's refusals and the remedies. It is empty if Isolation is [Full] or if
	// [WithIsolation] set the isolation explicitly. It is also the first of Notes.
	IsolationNote string
	UserIDs       int    // number of user ids in a sandbox; 1 when root and user have the same id
	Python        string // path of the interpreter; empty if there is none
	// PythonNote contains the features that the Python lacks and their remedies, like [Python].Note.
	// It is also in Notes. It is empty if Engine uses a Python of its own.
	PythonNote string
	// Promises lists the features of sandboxes, each with the reason if Engine lacks it on this
	// machine. A request for a missing feature returns an error that names the feature.
	Promises []Promise
	// Memory, CPU, Processes and Disk are the mechanisms that enforce the limits of sandboxes. If
	// nothing enforces a limit, its text is "not enforced: …" with the reason.
	Memory, CPU, Processes, Disk string
	// Egress describes the access of programs to the network: "transparent", or the reason why
	// only programs that use a proxy have access.
	Egress string
	// Pause is the mechanism that stops the processes of a sandbox that is paused with its memory. The
	// text also reports whether the files and the memory of a paused sandbox outlast the cloud. They
	// can only outlast it with [WithStateDir].
	Pause string
	// StateNotes lists risks for the directory of [WithStateDir], and damage to it. They are also in
	// Notes.
	StateNotes []string
	Notes      []string // missing or weak features of the machine, with remedies
}

// Promise reports whether an engine has a feature.
type Promise struct {
	Feature string
	Missing string // reason why the engine lacks the feature; empty if it has the feature
}

// Start starts a cloud. This takes tens of milliseconds. ctx limits only the start. Errors include
// [ErrUnsupported] and [ErrNoIsolation]. If sandboxes do not use the Python of [Setup], or if the
// machine's best isolation is less than [Full], Start succeeds and logs a warning with a remedy.
// Without any Python, running code returns an error with the reason.
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

// warn logs problems that would otherwise appear only as failures in a sandbox.
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

// Option returns an option that makes a client or a sandbox of package sandbox use this cloud.
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

// dial opens a connection to the cloud. After Close it returns an error at once, because
// another program may use the port.
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

// Env returns environment variables, as "NAME=value", that make any E2B SDK or command use this
// cloud. They include the API key. SDKs prefer E2B_API_URL, E2B_SANDBOX_URL and
// E2B_VOLUME_API_URL, which contain the cloud's port without TLS.
//
// For https, omit these three variables. E2B_API_KEY and E2B_DOMAIN then suffice, together with
// SSL_CERT_FILE, REQUESTS_CA_BUNDLE and NODE_EXTRA_CA_CERTS. The last three name files that contain
// the cloud's certificates and the certificates that this process already trusts. Close removes the
// files, unless [WithAuthority] is set.
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

// Domain returns the domain, with the port, of the API and the sandboxes, with and without TLS.
func (c *Cloud) Domain() string { return c.service.Domain() }

// APIKey returns the API key of the cloud.
func (c *Cloud) APIKey() api.Key { return api.Key(c.service.Key()) }

// Isolation returns the isolation of sandboxes on this machine.
func (c *Cloud) Isolation() Isolation { return c.service.report().Isolation }

// Report describes the features that this machine has, and the features that it lacks.
func (c *Cloud) Report() Report { return c.service.report() }

// EngineReport is like [Cloud.Report], but for any engine. For the cloud's default engine,
// [Cloud.Report] returns more information. EngineReport opens the engine if necessary. The error
// names the features that the engine needs and this machine lacks. The call takes at most half a
// minute.
func (c *Cloud) EngineReport(e Engine) (Report, error) { return c.service.engineReport(e) }

// Advance moves the clock of lifetimes forward, for tests. When Advance returns, all sandboxes
// whose lifetime is over by the new time have ended.
func (c *Cloud) Advance(d time.Duration) { c.service.Advance(d) }

// Done returns a channel that is closed when the cloud can no longer start sandboxes: the process
// that supervises them was killed three times within a minute, or could not be started again. After
// a single death of that process, only the running sandboxes end, and calls that create a sandbox
// wait for the next process. The cloud must still be closed.
func (c *Cloud) Done() <-chan struct{} { return c.service.Done() }

// Err returns the reason why the cloud can no longer start sandboxes. It is nil until the
// channel of Done is closed.
func (c *Cloud) Err() error { return c.service.Err() }

// Close ends all sandboxes and the cloud. If it returns nil, nothing of the cloud remains. An error
// names everything that could not be ended or removed, such as processes of sandboxes that have
// neither namespaces nor control groups. Later calls of clients and sandboxes with [Cloud.Option]
// return [ErrClosed]. Close may be called more than once and on nil.
func (c *Cloud) Close() error {
	if c == nil {
		return nil
	}
	c.closed.Store(true)
	return c.service.Close()
}
