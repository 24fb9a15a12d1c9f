package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// DefaultImage is the image of sandboxes that specify no image.
const DefaultImage = "python:3.12-slim"

// Options configure [Open].
type Options struct {
	Config    *rest.Config // address and credentials of the API server
	Namespace string       // namespace of the sandboxes; "": "default"
	Image     string       // image of sandboxes that specify no image; "": DefaultImage
	// ProgramImage is an image that contains, at [guest.Program], the program for pods in this
	// version. An init container copies the program into each pod. With TrustNetworkPolicy, sandboxes
	// that have this image themselves need no init container, and start sooner.
	ProgramImage string
	RuntimeClass string   // runtime class of the pods; "": the cluster's default
	Denied       []string // networks that pods cannot reach, in addition to those that are not part of the internet
	// TrustNetworkPolicy leaves the restriction of the pods' network to the policies of the cluster:
	// the engine itself does not restrict it. Use it for namespaces whose pods cannot have the
	// capability NET_ADMIN, even in an init container.
	TrustNetworkPolicy bool
	Logger             *slog.Logger // receives the log; nil: no log
	// Secret makes sandboxes outlive the engine: every engine with the same secret and namespace can
	// adopt them. It has at least 32 bytes. Without one, sandboxes end with the engine.
	Secret []byte

	// HomeBytes is the size of the volume that each sandbox has as its home. Sandboxes with a home can be
	// paused. 0 means no home. StorageClass is the class of the volumes; "": the cluster's default.
	HomeBytes    int64
	StorageClass string

	// Pools keep pods ready for new sandboxes. They need a Secret. They outlive the engine. If an engine
	// has Pools, it removes all other pools of engines with the same secret. Limits are the limits of the
	// pods.
	Pools  []Pool
	Limits engine.Limits

	lease       time.Duration // for tests; 0: leaseTime
	pace        time.Duration // for tests; 0: sweepPace
	claimTime   time.Duration // for tests; 0: claimTime
	staleResume time.Duration // for tests; 0: staleResume
}

// Engine runs sandboxes in pods.
type Engine struct {
	options Options
	config  *rest.Config
	client  dynamic.Interface
	keys    keys
	watch   *watch
	pools   map[string]struct{} // names of the pools; nil: the engine uses no pools

	life    context.Context //nolint:containedctx // it ends with the engine, not with a call
	end     context.CancelFunc
	elected atomic.Bool // this server sweeps

	mu        sync.Mutex
	closed    bool
	sandboxes map[string]*sandbox  // by the name of the object
	leftovers map[string]types.UID // objects that could not be removed, by name
	removed   map[string]types.UID // objects that were removed and that the watch still has, by name
	joining   chan struct{}        // has an element for each adopted sandbox that is being connected
	starting  sync.WaitGroup
	working   sync.WaitGroup

	done  chan struct{}
	close func() error
}

var _ engine.Engine = (*Engine)(nil)

// openTimeout limits the time of the first requests to the API server.
const openTimeout = 20 * time.Second

// These limit the rate of the client's requests. They are high because a list and a creation at the
// same time cause many requests.
const (
	requestsPerSecond = 200
	requestBurst      = 400
)

// Open connects to the API server and checks that agent-sandbox is installed. ctx limits only the
// start.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Config == nil || o.ProgramImage == "" {
		return nil, errors.New("kubernetes: Config and ProgramImage must be set")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Namespace, o.Image = cmp.Or(o.Namespace, "default"), cmp.Or(o.Image, DefaultImage)
	o.lease, o.pace, o.staleResume = cmp.Or(o.lease, leaseTime), cmp.Or(o.pace, sweepPace), cmp.Or(o.staleResume, staleResume)
	o.claimTime = cmp.Or(o.claimTime, claimTime)
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	e := &Engine{options: o, config: rest.CopyConfig(o.Config), sandboxes: map[string]*sandbox{}, leftovers: map[string]types.UID{}, removed: map[string]types.UID{}, joining: make(chan struct{}, maxJoining), done: make(chan struct{})}
	e.config.QPS, e.config.Burst = requestsPerSecond, requestBurst
	e.config.UserAgent = "e2bctl"
	if err := e.connect(ctx); err != nil {
		err = fmt.Errorf("kubernetes: %s: %w", o.Config.Host, err)
		if remedy := remedyOf(err); remedy != "" {
			err = fmt.Errorf("%w; %s", err, remedy)
		}
		return nil, err
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.watch = newWatch(e)
	e.working.Go(e.renewLeases)
	if e.lasts() {
		e.working.Go(e.elect)
		e.working.Go(e.sweepRemains)
	}
	e.close = sync.OnceValue(e.shutDown)
	return e, nil
}

// lasts reports whether sandboxes outlive the engine.
func (e *Engine) lasts() bool { return len(e.options.Secret) > 0 }

// connect makes the client and the keys, and checks that the namespace has Sandbox objects.
func (e *Engine) connect(ctx context.Context) (err error) {
	if e.client, err = dynamic.NewForConfig(e.config); err != nil {
		return err
	}
	if e.keys, err = newKeys(e.options.Secret, e.options.Namespace); err != nil {
		return err
	}
	_, err = e.objects().List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("list sandboxes of the namespace %s: %w", e.options.Namespace, err)
	case noKind(err):
		return explained(err)
	case err != nil:
		return err
	}
	return e.setPools(ctx)
}

// explained adds the remedy to the error of a request about the kind of sandboxes, if the cluster does not
// have the kind in the version of the engine, or refuses the credentials.
func explained(err error) error {
	switch {
	case noKind(err):
		return fmt.Errorf("the cluster has no %s in the version %s: %s: %w", sandboxes.GroupResource(), sandboxes.Version, installIt, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w; %s", err, remedyOf(err))
	}
	return err
}

// noKind reports whether the cluster does not serve the kind of a request. It says this as it says that an
// object is not there, but without the name of one.
func noKind(err error) bool {
	found, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (found.ErrStatus.Details == nil || found.ErrStatus.Details.Name == "")
}

// NewSandbox creates a Sandbox object and returns when the envd of its pod is ready. ctx limits
// only the start.
func (e *Engine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	s, err := e.newSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: start sandbox %.63s: %w", o.ID, err)
	}
	if e.lasts() {
		return lasting{s}, nil
	}
	return s, nil
}

// CheckLayers returns an error: pods do not share layers of this engine.
func (e *Engine) CheckLayers(context.Context, string) error {
	return fmt.Errorf("kubernetes: %w", e.promises().Check(engine.SharedLayers))
}

// Merge returns an error: pods do not share layers of this engine.
func (e *Engine) Merge(ctx context.Context, _ []string, dir string) error {
	return e.CheckLayers(ctx, dir)
}

// UnpackTar returns an error, because the images are on the nodes of the cluster, and not on the
// server.
func (e *Engine) UnpackTar(context.Context, []string, io.Reader, string) error {
	return fmt.Errorf("kubernetes: %w", engine.Lackf(engine.Images, "they are not layers of this server: the nodes of the cluster fetch them"))
}

// Done returns a channel that is closed only by Close. An API server that does not answer does not
// end the engine, because it may become reachable again.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns nil, because only Close ends the engine.
func (e *Engine) Err() error { return nil }

// Close ends the engine and all sandboxes, with their objects. With a secret, it leaves those that have
// a record, as [engine.Lasting].Leave does.
func (e *Engine) Close() error { return e.close() }

func (e *Engine) shutDown() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.starting.Wait()
	errs := make(chan error)
	var closing sync.WaitGroup
	e.mu.Lock()
	for _, s := range e.sandboxes {
		closing.Go(func() { errs <- s.leave() })
	}
	e.mu.Unlock()
	go func() {
		closing.Wait()
		close(errs)
	}()
	var err error
	for closed := range errs {
		err = errors.Join(err, closed)
	}
	e.working.Wait()
	e.watch.wait()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err = errors.Join(err, e.removeLeftovers(ctx))
	close(e.done)
	return err
}

// begin counts a sandbox as one that is starting, until the returned function is called. The
// returned context ends with the engine.
func (e *Engine) begin(ctx context.Context) (context.Context, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, engine.ErrClosed
	}
	e.starting.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(engine.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		e.starting.Done()
	}, nil
}
