package local

import (
	"errors"
	"log/slog"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
)

// Isolation is how far a sandbox is kept from the machine.
type Isolation string

// The kinds of isolation, from strongest to weakest.
const (
	Auto       Isolation = ""           // the strongest the machine gives, never None
	Full       Isolation = "full"       // namespaces, seccomp and limits
	Restricted Isolation = "restricted" // Landlock, seccomp and limits, without namespaces
	None       Isolation = "none"       // plain processes: only for code that is trusted
)

var (
	// ErrNoIsolation tells that this machine cannot isolate sandboxes. The text
	// of the error says what was tried and how to mend it.
	ErrNoIsolation = errors.New("no isolation")
	// ErrUnsupported tells that this operating system has no local cloud.
	ErrUnsupported = errors.New("the local cloud runs on Linux only: use a remote service through E2B_API_KEY and E2B_API_URL or E2B_DOMAIN")
)

// Option sets one thing of a cloud.
type Option func(*settings)

type settings struct {
	isolation    Isolation
	agent        string
	address      string
	key          api.Key
	maxSandboxes int
	limits       Limits
	denyPrivate  bool
	proxyNames   bool
	logger       *slog.Logger
}

// WithIsolation asks for one kind of isolation and no other. The default is
// [Auto]. [Restricted] that is asked for starts also where sandboxes have this
// program's user id and the kernel does not keep them from killing its processes,
// which [Report].Notes says then.
func WithIsolation(i Isolation) Option { return func(s *settings) { s.isolation = i } }

// WithAgent names the program that is started as agent of every sandbox, such
// as e2bctl, instead of this one. It must be of the same version.
func WithAgent(path string) Option { return func(s *settings) { s.agent = path } }

// WithAddress sets the host:port to listen on, which must be a loopback
// address. The default is a free port of 127.0.0.1.
func WithAddress(address string) Option { return func(s *settings) { s.address = address } }

// WithAPIKey sets the key that the cloud accepts. The default is a fresh one
// for each cloud, and the better choice: see [Cloud.APIKey].
func WithAPIKey(key api.Key) Option { return func(s *settings) { s.key = key } }

// WithMaxSandboxes sets how many sandboxes there may be at once; 0 is the
// default, 100. More are refused with [api.ErrRateLimited].
func WithMaxSandboxes(n int) Option { return func(s *settings) { s.maxSandboxes = n } }

// Limits are what one sandbox may use; fields that are zero are defaults.
type Limits = room.Limits

// WithLimits sets what each sandbox may use. [Report] says which of it this
// machine enforces.
func WithLimits(l Limits) Option { return func(s *settings) { s.limits = l } }

// WithPrivateNetworks says whether sandboxes with internet reach private
// addresses too, such as a package mirror of a company. The default is that
// they do. This machine's own addresses are never reachable.
func WithPrivateNetworks(allowed bool) Option {
	return func(s *settings) { s.denyPrivate = !allowed }
}

// WithProxyNames asks the HTTP proxy of this machine's environment (HTTPS_PROXY)
// for host names as sandboxes ask for them, for proxies that filter by name. The
// default is to resolve a name here, to check its addresses and to ask the proxy for
// one of these; a name that does not resolve here is refused where a network is
// denied ([WithPrivateNetworks], the rules of the sandbox) and where the proxy runs
// on this machine.
//
// With this option the proxy decides what a name leads to. Addresses are checked
// only of names that resolve here: sandboxes reach all else that the proxy lets them
// reach, private networks and services of the proxy's own machine included. Without
// a proxy it changes nothing.
func WithProxyNames() Option { return func(s *settings) { s.proxyNames = true } }

// WithLogger sets where the cloud logs. The default is nowhere.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }
