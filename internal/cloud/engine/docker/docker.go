package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sync/singleflight"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// DefaultImage is the image of sandboxes that name no image.
const DefaultImage = "python:3.12-slim"

// Options configure [Open]. The zero value is usable.
type Options struct {
	Host   string       // address of the daemon, as unix:///var/run/docker.sock; "": search
	Image  string       // image of sandboxes that name no image; "": DefaultImage
	Binary string       // static Linux program for the first process; "": the running program, or one that Setup makes
	Store  string       // identifies the owner of the images of templates in the daemon; "": this engine, and Passes is true
	Passes bool         // images of templates are removed once this process has ended
	Logger *slog.Logger // receives the log; nil: no log

	// MemoryBytes and all fields below are parameters of each container. If a limit is zero, the
	// limit of the sandbox applies.
	MemoryBytes  int64
	CPUs         float64
	MaxProcesses int      // maximum number of processes and threads together
	CapDrop      []string // capabilities to take away; "ALL" stands for all of them
	// SecurityOpt contains security options in addition to no-new-privileges, which is always set.
	// Open refuses an option that removes a protection.
	SecurityOpt []string
	User        string // name or id of the user of the container; "": the user that the image names
	// NetworkDisabled means that sandboxes have no network at all, not even through the proxy.
	NetworkDisabled bool
}

// Engine runs sandboxes in containers.
type Engine struct {
	options  Options
	client   *client.Client
	host     string // address of the daemon
	info     system.Info
	product  string // "Docker" or "Podman", and the version
	program  *program
	instance string // label of this engine's containers
	images   singleflight.Group
	gave     atomic.Bool // a template's image was loaded into the daemon

	life context.Context //nolint:containedctx // it ends with the engine, not with a call
	end  context.CancelFunc

	mu        sync.Mutex
	closed    bool
	sandboxes map[*sandbox]struct{}
	leftovers map[string]struct{} // containers that could not be removed
	starting  sync.WaitGroup
	watching  sync.WaitGroup
	quota     bool   // the daemon limits a container's writes
	noQuota   string // the reason that quota is false
	copies    bool   // the program is copied into each container

	done  chan struct{}
	close func() error
}

var _ engine.Engine = (*Engine)(nil)

// openTimeout bounds the search for a daemon.
const openTimeout = 20 * time.Second

// Open first refuses options that remove a protection. Then it finds the daemon, and removes the
// remains of dead servers. ctx bounds only Open itself, not the engine. If there is no daemon, the
// error matches [ErrNoDaemon].
func Open(ctx context.Context, o Options) (engine.Engine, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.checkSecurity(); err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	o.Image = cmp.Or(o.Image, DefaultImage)
	if o.Store == "" {
		o.Store, o.Passes = newInstance(), true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	c, host, err := find(ctx, o.Host)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	e, err := open(ctx, c, host, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("docker: %w", err), c.Close())
	}
	return e, nil
}

func open(ctx context.Context, c *client.Client, host string, o Options) (*Engine, error) {
	info, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask %s about itself: %w", host, err)
	}
	if info.Info.OSType != "" && info.Info.OSType != "linux" {
		return nil, fmt.Errorf("%s runs %s containers: switch it to Linux containers", host, info.Info.OSType)
	}
	product := "Docker " + info.Info.ServerVersion
	if version, err := c.ServerVersion(ctx, client.ServerVersionOptions{}); err == nil && len(version.Components) > 0 && strings.HasPrefix(version.Components[0].Name, "Podman") {
		product = "Podman " + version.Version
	}
	p, err := openProgram(o.Binary, info.Info.Architecture)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		options: o, client: c, host: host, info: info.Info, product: product, program: p, instance: newInstance(),
		sandboxes: map[*sandbox]struct{}{}, leftovers: map[string]struct{}{}, done: make(chan struct{}),
	}
	e.quota, e.noQuota = hasQuota(info.Info)
	e.copies = !isLocal(host) || runtime.GOOS != "linux" || !p.shared || hasSecurity(info.Info, "selinux")
	e.life, e.end = context.WithCancel(context.Background())
	e.close = sync.OnceValue(e.shutDown)
	if err := e.sweep(ctx); err != nil {
		o.Logger.WarnContext(ctx, "containers of dead servers could not be removed", "daemon", host, "error", err)
	}
	if err := sweepHandovers(); err != nil {
		o.Logger.WarnContext(ctx, "mounts of dead servers could not be removed", "daemon", host, "error", err)
	}
	if err := e.sweepImages(ctx); err != nil {
		o.Logger.WarnContext(ctx, "images of dead servers could not be removed", "daemon", host, "error", err)
	}
	return e, nil
}

// NewSandbox starts a container and returns when its envd is ready. ctx bounds only the start of the
// container and the pull of its image.
func (e *Engine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	s, err := e.newSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("docker: start sandbox %.63s: %w", o.ID, err)
	}
	return s, nil
}

// CheckLayers returns an error, because containers do not share layers of this engine.
func (e *Engine) CheckLayers(context.Context, string) error {
	return fmt.Errorf("docker: %w", e.promises().Check(engine.SharedLayers))
}

// Merge returns an error, because containers do not share layers of this engine.
func (e *Engine) Merge(context.Context, []string, string) error { return e.CheckLayers(nil, "") } //nolint:staticcheck // it needs no context

// UnpackTar returns an error, because the daemon itself stores the images. See [Engine.Load].
func (e *Engine) UnpackTar(context.Context, []string, io.Reader, string) error {
	return fmt.Errorf("docker: %w", engine.Lackf(engine.Images, "they are not layers of this server: the daemon keeps them"))
}

// Done returns a channel that only Close closes. The end of the daemon does not close it, because
// the daemon may be started again.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns nil: the engine ends only by Close.
func (e *Engine) Err() error { return nil }

// Close ends all sandboxes and the engine, and removes their containers.
func (e *Engine) Close() error { return e.close() }

func (e *Engine) shutDown() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.starting.Wait()
	e.mu.Lock()
	all := make([]*sandbox, 0, len(e.sandboxes))
	for s := range e.sandboxes {
		all = append(all, s)
	}
	e.mu.Unlock()
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, s := range all {
		closing.Go(func() { errs[i] = s.Close() })
	}
	closing.Wait()
	e.watching.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := errors.Join(errors.Join(errs...), e.removeLeftovers(ctx))
	if e.options.Passes && e.gave.Load() {
		if err := e.RemoveImages(ctx, func(string) bool { return false }); err != nil { // the next engine does it
			e.options.Logger.WarnContext(ctx, "images of templates could not be removed", "daemon", e.host, "error", err)
		}
	}
	err = errors.Join(err, e.client.Close(), e.program.Close())
	close(e.done)
	return err
}

// begin counts a sandbox as starting until the returned function is called. The returned context
// ends with the engine.
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
