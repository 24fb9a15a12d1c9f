package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Isolation is the kind of a sandbox's separation from the machine.
type Isolation string

// These are the kinds of isolation, from strongest to weakest.
const (
	Auto       Isolation = ""           // the strongest kind that the machine supports, never None
	Full       Isolation = "full"       // namespaces, seccomp and limits
	Restricted Isolation = "restricted" // Landlock, seccomp and limits, without namespaces
	None       Isolation = "none"       // plain processes: only for trusted code
)

// Engine is the name of an engine. An engine runs sandboxes.
type Engine = api.Engine

// These are the engines. [Report].Promises lists the features that an engine has and lacks.
const (
	EngineRoom   = api.EngineRoom   // namespaces of this machine's kernel: the default on Linux
	EngineDocker = api.EngineDocker // containers of the user's own Docker or Podman: the default elsewhere
	EngineWasm   = api.EngineWasm   // Python in WebAssembly, without processes: see [SetupWasm]
	EngineGVisor = api.EngineGVisor // a kernel in user space: see [SetupGVisor]
)

// Engines returns all engines, including those that this machine does not support.
func Engines() []Engine { return []Engine{EngineRoom, EngineDocker, EngineWasm, EngineGVisor} }

var (
	// ErrNoIsolation means that this machine cannot isolate sandboxes. With the default engine
	// of macOS and Windows it means that no Docker or Podman answers. The text of the error
	// contains the attempts and a remedy.
	ErrNoIsolation = errors.New("no isolation")
	// ErrClosed is returned by calls of clients and sandboxes after [Cloud.Close]. If the call is one
	// of a sandbox, the error then also matches [sandbox.ErrGone].
	ErrClosed = errors.New("the local cloud is closed")
	// ErrUnsupported means that this operating system does not have the engine.
	ErrUnsupported = errors.New("it runs on Linux only, with 64 bits: use the engine docker here, or a remote service through E2B_API_KEY and E2B_API_URL or E2B_DOMAIN")
)

// onLinux returns an error if the engine e needs Linux and system, a value of GOOS, is another
// operating system.
func onLinux(e Engine, system string) error {
	if system == "linux" {
		return nil
	}
	return fmt.Errorf("local: prepare %s for the engine %s: %w", system, e, ErrUnsupported)
}

// Option sets one setting of a cloud.
type Option func(*settings)

type settings struct {
	engine       Engine
	docker       DockerParams
	wasm         WasmParams
	runsc        string
	kubernetes   kubelink.Options
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
	allowed      []string // directories that clients may mount
	writable     []string // directories that clients may mount writable
	limits       engine.Limits
	most         engine.Bounds
	denyPrivate  bool
	proxyNames   bool
	services     []network.Service
	ask          func(ctx context.Context, id, host string, port int) bool
	images       images
	logger       *slog.Logger
}

// WithEngine sets the engine of sandboxes whose template names no engine: base, code-interpreter-v1
// and templates that are built from these two. The default is [DefaultEngine]. Templates of other
// engines, such as base-docker, are also available; such an engine is opened when its first sandbox
// is created. A template keeps the engine of its build, and so do snapshots and paused sandboxes.
func WithEngine(e Engine) Option { return func(s *settings) { s.engine = e } }

// WithIsolation sets the isolation of [EngineRoom]. The default is [Auto]. With [Restricted], Start
// succeeds even if sandboxes have this program's user id and the kernel does not prevent them from
// killing this program's processes; [Report].Notes then contains a warning. If i is not Auto and
// the machine does not support i, no other isolation replaces i, and the error is [ErrNoIsolation].
func WithIsolation(i Isolation) Option { return func(s *settings) { s.isolation = i } }

// WithBinary sets the program, such as e2bctl, that runs as the processes of the cloud and as the
// daemon (envd) of every sandbox. The default is this program. The program at path must have the
// same version as this program.
func WithBinary(path string) Option { return func(s *settings) { s.binary = path } }

// WithAddress sets the address to listen on, as host:port. The host must be a loopback address. The
// default is a free port of 127.0.0.1. For 127.0.0.1 or ::1, the cloud also listens on the same
// port of the other of these two addresses, because localhost may mean either.
func WithAddress(address string) Option { return func(s *settings) { s.address = address } }

// WithDomain sets the domain, without a port. The host name of the API is then api.NAME, and that
// of port P of sandbox I is P-I.NAME. These names must resolve to a loopback address of this
// machine: your own domain needs a wildcard (*.NAME) in DNS. The default is localhost.
func WithDomain(name string) Option { return func(s *settings) { s.domain = name } }

// WithAuthority sets the directory in which the cloud stores its certificate authority and the
// files of [Cloud.Env]. Programs that trust the authority then still trust it after a restart. Only
// this user may have write access, because the directory contains a private key. By default each
// cloud has its own authority, and Close removes its files.
func WithAuthority(dir string) Option { return func(s *settings) { s.authority = dir } }

// WithStateDir sets the directory for state that outlives the cloud: paused sandboxes with
// their files, and the secrets of keys and tokens. The next cloud with the same directory has
// the same sandboxes and the same key. The directory is created if it is missing, and must
// belong to this user alone. Only one cloud can use it at a time. By default nothing outlives
// [Cloud.Close].
func WithStateDir(dir string) Option { return func(s *settings) { s.state = dir } }

// WithAPIKey sets the API key of the cloud. The default is a new key for each cloud, or for each
// directory of [WithStateDir]. The default is the better choice: see [Cloud.APIKey].
func WithAPIKey(key api.Key) Option { return func(s *settings) { s.key = key } }

// WithMaxSandboxes limits the number of sandboxes that exist at the same time; 0 means the
// default, 100. Beyond the limit, creations return [sandbox.ErrRateLimited].
func WithMaxSandboxes(n int) Option { return func(s *settings) { s.maxSandboxes = n } }

// DefaultWarm is the default number of sandboxes that a cloud keeps ready. MaxWarm is the
// largest allowed number; see [WithWarm].
const (
	DefaultWarm = 2
	MaxWarm     = 64
)

// WithWarm sets the number of sandboxes that are kept ready. The default is [DefaultWarm]. [Start]
// returns an error for a negative number and for more than [MaxWarm]. With 0 no sandbox is kept
// ready. The first run of code is then slower, because only then does the cloud load the mechanism
// that starts code fast.
//
// With a ready sandbox, [sandbox.Client.Create] takes a few milliseconds. The sandbox has already
// forked the Python process that runs its first code. That process exists from the beginning, and
// ends after a minute if no code is run. Each ready sandbox takes about 3 MB, and its Python
// process another 6 MB. After each creation the cloud prepares the next sandbox in the background.
// A larger number helps if sandboxes are created in quick succession or several at once.
func WithWarm(n int) Option { return func(s *settings) { s.warm = n } }

// Resources contains the limits of one sandbox. A zero field means its default.
type Resources struct {
	// MemoryBytes limits the memory, including files that are stored in memory. The default is 2 GiB.
	MemoryBytes int64
	// CPUs limits the processors that the sandbox can use; 0.5 means half of one. The default
	// is 2. A sandbox never has more processors than the machine.
	CPUs float64
	// MaxProcesses limits the processes and threads. The default is 1024.
	MaxProcesses int
	// DiskBytes limits the bytes of the files that the sandbox writes. The default is half of
	// MemoryBytes, at most 10 GiB.
	DiskBytes int64
}

// WithResources sets the limits of each sandbox for which neither its client nor its template asks
// for resources: see [sandbox.WithResources]. [Report] lists the limits that this machine
// enforces.
func WithResources(r Resources) Option { return func(s *settings) { s.limits = engine.Limits(r) } }

// WithMaxCPUs limits the processors of each sandbox. If a client requests more, it receives an error. If
// a template requests more, it is built, with a note in the log of the build, and its sandboxes get n.
// The default, 0, means all processors of the machine.
func WithMaxCPUs(n float64) Option { return func(s *settings) { s.most.CPUs = n } }

// WithMaxMemoryBytes limits the memory of each sandbox, in the same way as [WithMaxCPUs] limits the
// processors. The default, 0, means all memory of the machine.
func WithMaxMemoryBytes(n int64) Option { return func(s *settings) { s.most.MemoryBytes = n } }

// WithMaxVolumeBytes limits the size of each new volume. It needs root, loop devices and mkfs.ext4,
// because each volume is then a separate file system. If this machine cannot create such volumes,
// [Start] returns an error. A volume has at least 16 MiB, and keeps its size forever. The default,
// 0, means no limit: the files of volumes can then fill the disk.
func WithMaxVolumeBytes(n int64) Option { return func(s *settings) { s.volumeSize = n } }

// WithMount mounts a directory of this machine in every sandbox of the cloud. The mount is
// read-only if m.Writable is not set. Builds of templates do not see it. [Start] opens the
// directory once, so later changes of its name have no effect. In the sandbox, the files of the
// directory's owner belong to the account "user", and all other files to the account "nobody". If
// sandboxes have their own user ids, a writable directory must not belong to root. The cloud
// refuses to create sandboxes in which it cannot mount the directory: see [Report].Promises. The
// option may be given several times.
//
// In the directory, code in a sandbox can read all files that the directory's owner can read, and
// can connect to sockets.
func WithMount(m sandbox.Mount) Option {
	return func(s *settings) { s.mounts = append(s.mounts, m) }
}

// WithAllowedMounts permits clients to mount these directories of this machine, and all directories
// below them, in a sandbox with [sandbox.WithMount], read-only. Links that lead out of these
// directories are not followed. By default no directory is permitted. The option may be given
// several times.
func WithAllowedMounts(dirs ...string) Option {
	return func(s *settings) { s.allowed = append(s.allowed, dirs...) }
}

// WithWritableMounts is like [WithAllowedMounts], but also permits writable mounts.
func WithWritableMounts(dirs ...string) Option {
	return func(s *settings) { s.writable = append(s.writable, dirs...) }
}

// WithoutPrivateNetworks denies private addresses, such as a company's package mirror, to all
// sandboxes. By default sandboxes with internet access reach private addresses.
// [sandbox.Network].DenyPrivate denies private addresses to a single sandbox. This machine's own
// addresses are never reachable.
func WithoutPrivateNetworks() Option { return func(s *settings) { s.denyPrivate = true } }

// WithProxyNames passes host names from sandboxes unchanged to the HTTP proxy of this machine's
// environment (HTTPS_PROXY), for proxies that filter by name. By default the cloud resolves a name,
// checks its addresses and sends one of the addresses to the proxy. If the cloud cannot resolve a
// name, it refuses the name by default in two cases: if a network is denied (by
// [WithoutPrivateNetworks] or the rules of the sandbox), and if the proxy runs on this machine.
//
// With this option the proxy resolves the names. The cloud checks addresses only for names that the
// cloud itself can resolve. Under all other names, sandboxes reach every destination that the proxy
// permits, including private networks and services of the proxy's own machine. Without a proxy the
// option has no effect.
func WithProxyNames() Option { return func(s *settings) { s.proxyNames = true } }

// WithHostService lets all sandboxes reach a service of this machine, or of its network, by the name
// NAME.host.internal. name is NAME, one label of a host name, or NAME:PORT if sandboxes use another
// port than address. address is host:port, or unix: and the absolute path of a socket, which needs
// NAME:PORT. With "db" and "127.0.0.1:5432", programs in a sandbox connect to
// db.host.internal:5432. The option may be given several times, with other names.
//
// Nothing else of the host becomes reachable. The network rules of a sandbox still apply to the
// name: a sandbox that denies [sandbox.AllTraffic], or that has no internet access, reaches the
// service only if its rules allow the name. [WithoutPrivateNetworks] and rules about private
// addresses do not apply. Each connection is in the sandbox's log, together with the reason if the
// service did not accept it; the program in the sandbox then sees a connection that failed.
//
// Start fails if the address is link-local, of a metadata service, or the port of the cloud itself.
// If host is a name, its address is looked up, and checked in the same way, for each connection.
//
// If [Report].Egress is "transparent", programs can use every protocol. Otherwise, only programs that
// use the proxy of their environment reach the service. Pods and sandboxes of WebAssembly never reach
// it: Start fails if they are the default engine.
func WithHostService(name, address string) Option {
	return func(s *settings) { s.services = append(s.services, network.Service{Name: name, Address: address}) }
}

// WithAsk sets a function that is called before a sandbox reaches a host that its network rules
// allow without naming it. The rules of a sandbox that was created without rules allow every host
// in this way. ask receives the id of the sandbox, the host's name or address, and the port. It
// returns whether the sandbox may reach this host and port. It is called from several goroutines.
//
// An answer is valid for this host and port, and for the life of the sandbox. After 30 seconds
// without an answer, ctx ends and the host is denied. At most 32 questions about one sandbox, and
// 1,000 in all, can be open at the same time. Further hosts are denied.
//
// Names are looked up only after ask has permitted them. Until then, inside the sandbox a name
// resolves to an address of 198.18.0.0/15 that represents the name.
//
// ask is not called for sandboxes that deny [sandbox.AllTraffic], that were created without
// internet access, or that have their own [sandbox.WithAsk].
func WithAsk(ask func(ctx context.Context, id, host string, port int) bool) Option {
	return func(s *settings) { s.ask = ask }
}

// WithLogger sets the logger of the cloud. By default only the warnings of [Start] are logged,
// to [slog.Default].
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }
