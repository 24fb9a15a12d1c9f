package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Isolation is the strength of a sandbox's separation from the machine.
type Isolation string

// The kinds of isolation, from strongest to weakest.
const (
	Auto       Isolation = ""           // the strongest that the machine provides, never None
	Full       Isolation = "full"       // namespaces, seccomp and limits
	Restricted Isolation = "restricted" // Landlock, seccomp and limits, without namespaces
	None       Isolation = "none"       // plain processes: only for trusted code
)

// Engine names an engine that runs sandboxes.
type Engine = api.Engine

// The engines. [Report].Promises lists the features of each, and its lacks.
const (
	EngineRoom   = api.EngineRoom   // namespaces of this machine's kernel: the default on Linux
	EngineDocker = api.EngineDocker // containers of the user's own Docker or Podman: the default elsewhere
	EngineWasm   = api.EngineWasm   // Python in WebAssembly, without processes: see [SetupWasm]
	EngineGVisor = api.EngineGVisor // a kernel in user space: see [SetupGVisor]
)

// Engines returns all of them, whether or not this machine has them.
func Engines() []Engine { return []Engine{EngineRoom, EngineDocker, EngineWasm, EngineGVisor} }

var (
	// ErrNoIsolation means that this machine cannot isolate sandboxes: with the default engine of
	// macOS and Windows, that no Docker or Podman answers. The text of the error names the
	// attempts and a remedy.
	ErrNoIsolation = errors.New("no isolation")
	// ErrClosed is returned by calls of clients and sandboxes after [Cloud.Close]. Calls
	// of a sandbox then match [sandbox.ErrGone] as well.
	ErrClosed = errors.New("the local cloud is closed")
	// ErrUnsupported means that this operating system does not have the engine.
	ErrUnsupported = errors.New("it runs on Linux only, with 64 bits: use the engine docker here, or a remote service through E2B_API_KEY and E2B_API_URL or E2B_DOMAIN")
)

// onLinux returns an error unless system, as Go names it, can be prepared for an engine that
// runs on Linux only.
func onLinux(e Engine, system string) error {
	if system == "linux" {
		return nil
	}
	return fmt.Errorf("local: prepare %s for the engine %s: %w", system, e, ErrUnsupported)
}

// Option sets one property of a cloud.
type Option func(*settings)

type settings struct {
	engine       Engine
	docker       DockerParams
	wasm         WasmParams
	runsc        string
	isolation    Isolation
	binary       string
	address      string
	domain       string
	authority    string
	state        string
	key          api.Key
	maxSandboxes int
	warm         int
	volumeSize   int64
	mounts       []sandbox.Mount
	allowed      []string // directories that clients may ask for
	writable     []string // and may have changed
	limits       engine.Limits
	denyPrivate  bool
	proxyNames   bool
	ask          func(ctx context.Context, id, host string, port int) bool
	images       images
	logger       *slog.Logger
}

// WithEngine sets the engine of sandboxes whose template names none: base, code-interpreter-v1 and
// the templates that are built from them. The default is [DefaultEngine]. Templates of other
// engines are there all the same, such as base-docker, and their engine is opened with the first
// sandbox. A template keeps the engine that it was built with; so do snapshots and paused
// sandboxes.
func WithEngine(e Engine) Option { return func(s *settings) { s.engine = e } }

// WithIsolation asks for one kind of isolation of [EngineRoom] and no other. The default is
// [Auto]. If [Restricted] is asked for, it starts even where sandboxes have this
// program's user id and the kernel does not prevent them from killing its processes;
// [Report].Notes then says so.
func WithIsolation(i Isolation) Option { return func(s *settings) { s.isolation = i } }

// WithBinary names the program, such as e2bctl, that is started again for the
// processes of the cloud and, as the daemon (envd), of every sandbox. The default is
// this program. It must be of the same version.
func WithBinary(path string) Option { return func(s *settings) { s.binary = path } }

// WithAddress sets the host:port to listen on, which must be a loopback
// address. The default is a free port of 127.0.0.1. On 127.0.0.1 and ::1 the same port of
// the other address is used, too, because localhost is both.
func WithAddress(address string) Option { return func(s *settings) { s.address = address } }

// WithDomain sets the name, without a port, under which the API is api.NAME and port P
// of sandbox I is P-I.NAME. Both must lead to this machine's loopback: a name of your own
// needs a wildcard (*.NAME) in DNS. The default is localhost.
func WithDomain(name string) Option { return func(s *settings) { s.domain = name } }

// WithAuthority names the directory in which the cloud keeps its certificate authority
// and the files of [Cloud.Env], so that programs that trust it still do after a restart.
// It must be writable by this user alone: it holds a key. By default each cloud has an
// authority of its own, whose files are removed by Close.
func WithAuthority(dir string) Option { return func(s *settings) { s.authority = dir } }

// WithStateDir names the directory for state that outlives the cloud: paused sandboxes with their
// files, and the secrets of keys and tokens. The next cloud with the same directory has them, and
// the same key. It is made if need be, and must be this user's alone; only one cloud can use it at
// a time. By default nothing outlives [Cloud.Close].
func WithStateDir(dir string) Option { return func(s *settings) { s.state = dir } }

// WithAPIKey sets the key that the cloud accepts. The default, a fresh key
// for each cloud or [WithStateDir], is the better choice: see [Cloud.APIKey].
func WithAPIKey(key api.Key) Option { return func(s *settings) { s.key = key } }

// WithMaxSandboxes sets how many sandboxes may exist at once; 0 means the
// default, 100. Creating more fails with [sandbox.ErrRateLimited].
func WithMaxSandboxes(n int) Option { return func(s *settings) { s.maxSandboxes = n } }

// DefaultWarm is the number of sandboxes that a cloud keeps ready by default, and MaxWarm the
// largest number that it can; see [WithWarm].
const (
	DefaultWarm = 2
	MaxWarm     = 64
)

// WithWarm sets how many sandboxes are kept ready ahead of their use; 0 keeps none, and then loads
// the parts that make code start fast only when code is run, which is slower at first. The default
// is [DefaultWarm]; with less than 0 or more than [MaxWarm], [Start] fails. A sandbox that is
// ready makes [sandbox.Client.Create] take a few milliseconds, and has forked the Python process
// of its first code, which is among its processes from its beginning and for up to a minute if no
// code is run. Each takes about 3 MB, and 6 MB for that process. The next one is made after each
// create, in the background: more of them help where sandboxes are created one right after the
// other, or several at once.
func WithWarm(n int) Option { return func(s *settings) { s.warm = n } }

// Resources are the limits of one sandbox; zero fields mean the defaults.
type Resources struct {
	// MemoryBytes bounds its memory, files included. The default is 2 GiB.
	MemoryBytes int64
	// CPUs limits the processors that it keeps busy, 0.5 for half of one. The default
	// is 2, and there are never more than the machine has.
	CPUs float64
	// MaxProcesses limits its processes and threads. The default is 1024.
	MaxProcesses int
	// DiskBytes bounds the files that it writes. The default is half of MemoryBytes,
	// at most 10 GiB.
	DiskBytes int64
}

// WithResources sets the limits of each sandbox. [Report] says which of these bounds this machine
// enforces.
func WithResources(r Resources) Option { return func(s *settings) { s.limits = engine.Limits(r) } }

// WithMaxVolumeBytes bounds the size of each new volume. This needs root, loop devices and
// mkfs.ext4: the volume is a file system of its own, of at least 16 MiB. [Start] fails where that
// does not work. A volume keeps its size for ever. The default, 0, is no bound: the files of
// volumes can then fill the disk.
func WithMaxVolumeBytes(n int64) Option { return func(s *settings) { s.volumeSize = n } }

// WithMount shows a directory of this machine in every sandbox of the cloud, read-only
// unless m.Writable; builds of templates do not see it. It is opened once, by [Start]:
// later changes of its name do not matter. What belongs to its owner belongs to user
// inside, and everything else to nobody. A writable one must not belong to root where
// sandboxes have ids of their own. Sandboxes that cannot have it are refused: see
// [Report].Promises. The option may be given several times.
//
// Code in a sandbox reads all that the owner could read there, and connects to sockets
// that are there.
func WithMount(m sandbox.Mount) Option {
	return func(s *settings) { s.mounts = append(s.mounts, m) }
}

// WithAllowedMounts allows clients, with [sandbox.WithMount], to have these directories of
// this machine and all below them shown in a sandbox, read-only. Links that lead out of
// them are not followed. Without it the key of the cloud reaches none. The option may be
// given several times.
func WithAllowedMounts(dirs ...string) Option {
	return func(s *settings) { s.allowed = append(s.allowed, dirs...) }
}

// WithWritableMounts is [WithAllowedMounts] for directories that sandboxes may change, too.
func WithWritableMounts(dirs ...string) Option {
	return func(s *settings) { s.writable = append(s.writable, dirs...) }
}

// WithoutPrivateNetworks denies private addresses, such as a company's package
// mirror, to all sandboxes. By default those with internet reach them, unless
// [sandbox.Network].DenyPrivate denies them to one. This machine's own addresses are
// never reachable.
func WithoutPrivateNetworks() Option { return func(s *settings) { s.denyPrivate = true } }

// WithProxyNames passes host names to the HTTP proxy of this machine's environment
// (HTTPS_PROXY) as sandboxes ask for them, for proxies that filter by name. The
// default is to resolve a name here, to check its addresses and to ask the proxy for
// one of these; a name that does not resolve here is refused where a network is
// denied ([WithoutPrivateNetworks], the rules of the sandbox) and where the proxy runs
// on this machine.
//
// With this option the proxy decides where a name leads. Addresses are checked
// only for names that resolve here: sandboxes reach everything else that the proxy
// lets them reach, including private networks and services of the proxy's own machine.
// Without a proxy it changes nothing.
func WithProxyNames() Option { return func(s *settings) { s.proxyNames = true } }

// WithAsk sets a function that is called before a sandbox reaches a host that its network rules
// allow without naming it, as all do for a sandbox that was created without rules. ask gets the id
// of the sandbox, the host's name or address, and the port. It returns whether the port may be
// reached. It is called from several goroutines. The answer holds for this host and port, for the
// life of the sandbox. It is no if there is none within 30 seconds, when ctx ends. Up to 32
// questions about one sandbox are open at the same time, and 1,000 in all: more are denied.
//
// Names are looked up after the answer. Inside, such a name resolves to an address of
// 198.18.0.0/15 that stands for it.
//
// It is not called for sandboxes that deny [sandbox.AllTraffic] or were created without internet
// access, nor for those with [sandbox.WithAsk], whose own program is asked.
func WithAsk(ask func(ctx context.Context, id, host string, port int) bool) Option {
	return func(s *settings) { s.ask = ask }
}

// WithLogger sets where the cloud logs. By default only the warnings of [Start] are
// logged, with [slog.Default].
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }
