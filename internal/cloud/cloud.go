package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/edge"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Bounds of the HTTP server.
const (
	headerDeadline = 10 * time.Second  // for the head of a request, and until a new connection's first request is admitted
	idleDeadline   = 620 * time.Second // exceeds the idle timeout of the load balancers that clients are built for
	maxHeader      = 64 << 10
	maxStreams     = 1000 // maximum number of streams on one HTTP/2 connection
)

// Options configure a cloud. The zero value is usable.
type Options struct {
	Address      string            // host:port to listen on; a loopback address if Service is nil; "": a free port on 127.0.0.1
	Domain       string            // host name that resolves to this machine, without port; "": localhost
	Authority    string            // private directory of the certificate authority; "": a new authority that ends with the cloud
	SecretsKey   string            // key for sealing secrets, as in secrets.EnvKey; "": kept in a file of this user, if State is set
	State        string            // directory for data that outlives the process; "": no data outlives it
	Key          string            // API key; "": the key in State, or a new one
	Dir          string            // private directory for instance directories; "": a directory of this user
	Engine       engine.Name       // engine for templates that name none; "": engine.Room, or engine.Docker where there are no rooms
	Docker       docker.Options    // options of engine.Docker; the fields Binary and Logger below replace its Binary and Logger
	Kubernetes   kubelink.Options  // options of engine.Kubernetes
	Runsc        string            // runsc of engine.GVisor; "": the one that package gvisorenv installed
	Isolation    engine.Isolation  // isolation level of the room; "": the best that this machine supports
	Binary       string            // program to execute for the cloud's processes; "": this program
	Python       *pyenv.Env        // Python of kernels; nil: search for a Python
	Limits       engine.Limits     // limits of each sandbox; zero fields have default values
	Most         engine.Bounds     // maximum resources of one sandbox; a zero field means the resources of the machine
	Space        int64             // maximum bytes of layers, cached steps of builds and their archives; 0: builds.DefaultCap
	Warm         int               // number of warm sandboxes, which are ready for the next create
	MaxSandboxes int               // maximum number of sandboxes at the same time; 0: lifecycle.DefaultMaxSandboxes
	Mounts       []mounts.Mount    // directories of the host that are mounted in every sandbox
	AllowMounts  []mounts.Allowed  // directories of the host; clients may request mounts of directories below them
	PyodideDist  string            // directory of a Pyodide distribution, from which sandboxes of engine.Wasm install packages; "": none
	VolumeSize   int64             // maximum bytes of each new volume, which then has its own file system; 0: no bound
	Rate         control.RateLimit // limit for requests with the same API key
	Policy       network.Policy    // restricts the addresses that all sandboxes can reach
	ProxyNames   bool              // passes names to the machine's proxy unchanged, as in network.Dialer
	HostServices []network.Service // services of this machine that all sandboxes reach by name
	Images       ImageSources      // sources of container images besides registries
	Roots        *x509.CertPool    // trusted roots for the certificates of hosts with header rules; nil: the machine's roots
	Logger       *slog.Logger      // nil: no log
	Service      *Service          // nil: the cloud serves this machine only
	// Ask decides whether a sandbox may reach a port of a host. Ask is called for a host that the
	// rules of the sandbox allow but do not name. If Ask is nil, the sandbox may reach the port. If
	// the rules of the sandbox themselves require questions, Ask is not called.
	Ask func(ctx context.Context, id, host string, port int) bool
}

// Cloud is an E2B-compatible service that runs inside this process. It is safe for concurrent
// use. The caller must close it.
type Cloud struct {
	options   Options
	python    *pyenv.Env
	dialer    *network.Dialer
	engines   *engines
	store     *store.Store
	volumes   *volumes.Registry
	mounts    *mounts.Set
	dist      *mounts.Set // the Pyodide distribution, mounted in sandboxes that run pip for engine.Wasm
	secrets   *secrets.Registry
	telemetry *telemetry.Registry
	builds    *builds.Builder
	images    *image.Puller
	kept      *layers.Set
	keeping   keeping
	sandboxes *lifecycle.Registry
	router    *edge.Router
	peers     *peers
	services  *network.Services // nil: none
	server    *http.Server
	address   net.Addr
	trust     localtls.Trust
	keyFiles  *control.KeyFiles   // nil without a Service
	tlsFiles  *localtls.Files     // files of the certificate; nil: the cloud's authority issues the certificates
	metrics   *metricsServer      // nil: there is none
	limit     *connlimit.Listener // bounds the connections of clients
	log       requestlog.Log
	faults    faults
	handlers  handlers
	serving   sync.WaitGroup
	keeper    io.Closer       // removes the directory of the instance; nil: removeInstance removes the directory
	life      context.Context //nolint:containedctx // for background work, until Close
	endLife   context.CancelFunc
	renewing  sync.WaitGroup
	broken    broken
	close     func() error
}

// Start creates a cloud and serves it. ctx bounds only the start. The error is
// engine.ErrNoIsolation (by errors.Is) if the machine cannot isolate sandboxes. Without a
// Python, Start succeeds, but kernels cannot start.
func Start(ctx context.Context, o Options) (*Cloud, error) {
	return start(ctx, o, openers)
}

// assemble creates the parts of the cloud that answer requests. It cannot fail.
func (c *Cloud) assemble(config *tls.Config) {
	o := c.options
	cache := builds.OpenCache(c.store, c.kept, o.Logger)
	images := make([]templates.Image, 0, len(o.Kubernetes.Templates))
	for _, t := range o.Kubernetes.Templates {
		images = append(images, templates.Image{Name: t.Name, Reference: t.Image})
	}
	all := templates.Open(templates.Options{Store: c.store, Layers: c.kept, Images: images, Logger: o.Logger})
	c.sandboxes = lifecycle.New(lifecycle.Options{
		MaxSandboxes: o.MaxSandboxes, Secure: o.Service != nil, TrafficTokens: o.Service.guardsCode(), MaxFrozenMemory: machineMemory() / 2, Store: c.store, Layers: c.kept, Launch: c.launch, IDOf: c.idOf, Ended: c.telemetry.End, Logger: c.logger("lifecycle"),
	})
	c.kept.Sweep()
	c.keeping.begin(c.collectImages)
	c.builds = builds.New(builds.Options{
		Store: c.store, Templates: all, Layers: c.kept, Cache: cache, KeptImages: c.images.Uses, Cap: o.Space, ImageCap: o.Images.MaxBytes, Logger: o.Logger,
		Launch: func(ctx context.Context, spec lifecycle.Spec) (builds.Sandbox, error) { return c.open(ctx, spec, nil) },
		Engine: o.Engine, Target: c.buildTarget,
		Describe: c.describeBuild, Path: searchPath(c.python),
	})
	c.secrets = secrets.New(secrets.Options{Store: c.store, Key: keyOfSecrets(o), Logger: o.Logger})
	c.dialer.Unseal = func(p *network.EgressProxy) (string, error) { return c.secrets.Unseal(p.Sealed, p.SealedUnder()) }
	api := control.New(control.Options{
		Key: c.options.Key, KeyFiles: c.keyFiles, Secure: o.Service != nil, BehindProxy: o.Service.behindProxy(), Domain: c.Domain(), EnvdVersion: protocol.EnvdVersion,
		Engine: o.Engine, Architecture: c.architecture(), Resources: resources(o.Limits), Of: map[engine.Name]control.Resources{engine.Docker: resources(o.Docker.Limits(o.Limits))}, Bounds: c.bounds, CheckResources: c.checkResources, NoDiskLimit: c.engines.noDiskLimit, Mounts: o.Mounts,
		Sandboxes: c.sandboxes, Templates: all, Builds: c.builds, Volumes: c.volumes, Secrets: c.secrets, CheckProxy: c.dialer.CheckProxy,
		Telemetry: c.telemetry, Store: c.store, Rate: o.Rate, Logger: o.Logger,
	})
	c.router = edge.New(edge.Options{API: c.faults.operationHandler(api.Operation, api), Domain: c.Domain(), Hosts: o.Service.hosts(), Logger: c.logger("edge"), Wake: c.wake, Asleep: c.asleep, Ended: c.sandboxes.Ended})
	c.peers = c.newPeers(config)
	c.log.Each = c.metrics.counting(api.Operation)
}

// serve answers the requests on the listener until Close.
func (c *Cloud) serve(listener net.Listener) {
	c.broken.done = make(chan struct{})
	c.serveMetrics()
	c.server = &http.Server{
		Handler:           connlimit.Handler(c.handlers.counted(c.log.Handler(c.faults.handler(c.router)))),
		ConnContext:       connlimit.ConnContext,
		ReadHeaderTimeout: headerDeadline,
		IdleTimeout:       idleDeadline,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(c.options.Logger.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	c.server.Protocols.SetHTTP1(true)
	c.server.Protocols.SetHTTP2(true)
	c.server.Protocols.SetUnencryptedHTTP2(true)
	c.serving.Go(func() { _ = c.server.Serve(listener) }) // until Close
	c.renewing.Go(c.renewEngine)
}

// Close ends every sandbox and connection, and then the cloud. It returns when all of them have
// ended. Close is idempotent. A caller that wants requests to end first calls Drain before.
func (c *Cloud) Close() error { return c.close() }

func (c *Cloud) shutDown(dir string) error {
	c.endLife()
	err := c.server.Close()
	c.serving.Wait()
	c.builds.Close()
	c.images.Close()
	err = errors.Join(err, c.sandboxes.Close())
	c.peers.close()
	<-c.handlers.stop(true)
	c.telemetry.Close()
	// A store that ends with the instance removes the files of sandboxes in volumes and layers,
	// whatever their modes. Then the engine removes the directory of the instance.
	c.keeping.close()
	err = errors.Join(err, c.volumes.Close(), c.store.Close(), c.engines.close(), c.mounts.Close(), c.dist.Close())
	c.renewing.Wait()
	return errors.Join(err, c.metrics.close(), c.removeInstance(dir))
}

// URL returns the http address of the API and the sandboxes. The same port also serves https. If
// the certificate comes from files of a Service, the port serves only https, and URL returns the
// https address.
func (c *Cloud) URL() string {
	if c.tlsFiles != nil {
		return "https://" + c.address.String()
	}
	return "http://" + c.address.String()
}

// Domain returns the host name and port of sandboxes, for http and https. Port P of sandbox I
// has the address P-I.Domain, and the API has the address api.Domain.
func (c *Cloud) Domain() string {
	if c.options.Service.hidesPort(c.options.Domain, c.address) {
		return c.options.Domain
	}
	return net.JoinHostPort(c.options.Domain, strconv.Itoa(c.address.(*net.TCPAddr).Port))
}

// Trust returns the files that make clients trust the certificates of Domain.
func (c *Cloud) Trust() localtls.Trust { return c.trust }

// Key returns the API key, which is a secret.
func (c *Cloud) Key() string { return c.options.Key }

// Isolation returns the isolation level of sandboxes.
func (c *Cloud) Isolation() engine.Isolation { return c.ownEngine().Report().Isolation }

// Report describes the isolation that this machine provides, and how long pauses last.
func (c *Cloud) Report() engine.Report {
	report := c.ownEngine().Report()
	switch {
	case c.store.Durable() && report.Promises[engine.SavedMemory] == "":
		report.Pause += "; memory and written files are copied to the state directory"
	case c.store.Durable():
		report.Pause += "; written files are copied to the state directory"
	default:
		report.Pause += "; nothing is copied, and what is paused ends with the cloud"
	}
	return report
}

// Python returns the Python environment of kernels.
func (c *Cloud) Python() *pyenv.Env { return c.python }

// Requests returns the most recently answered requests, oldest first.
func (c *Cloud) Requests() []requestlog.Entry { return c.log.Entries() }

// Inject makes a later request fail, for tests. It returns an error if f is not valid.
func (c *Cloud) Inject(f Fault) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("cloud: inject a fault: %w", err)
	}
	c.faults.add(f)
	return nil
}

// UnmetFaults returns the faults that no request has met.
func (c *Cloud) UnmetFaults() []Fault { return c.faults.unmet() }

// Advance advances the clock that the lifetimes of sandboxes use, for tests.
func (c *Cloud) Advance(d time.Duration) { c.sandboxes.Advance(d) }
