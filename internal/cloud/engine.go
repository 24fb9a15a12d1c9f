package cloud

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// opener opens an engine of a cloud whose other parts already exist. dir is the directory of
// the instance.
type opener func(ctx context.Context, c *Cloud, dir string) (engine.Engine, error)

func openDocker(ctx context.Context, c *Cloud, _ string) (engine.Engine, error) {
	o := c.options.Docker
	o.Binary, o.Logger = c.options.Binary, c.logger("engine")
	sum := sha256.Sum256(append([]byte("images"), c.store.Seed()...))
	o.Store, o.Passes = hex.EncodeToString(sum[:10]), !c.store.Durable()
	return docker.Open(ctx, o)
}

func openPods(ctx context.Context, c *Cloud, _ string) (engine.Engine, error) {
	o := c.options.Kubernetes
	o.Limits = c.options.Limits
	return kubelink.Open(ctx, o, c.logger("engine"))
}

// engines are the engines of a cloud. The cloud's own engine is opened at the start. The others
// are opened when a template first requires them.
type engines struct {
	own    engine.Name
	all    map[engine.Name]*lazyEngine
	opened func(engine.Engine)       // called for each opened engine; must return quickly
	check  func(engine.Report) error // returns an error if the cloud must not use an engine
	latest sync.Map                  // maps each engine.Name to the engine.Engine of that name that was opened last
}

// lazyEngine is an engine that is opened when it is first needed. If the engine later ends by itself,
// the next use opens it again.
type lazyEngine struct {
	open func(context.Context) (engine.Engine, error)

	mu     sync.Mutex // also held while the engine is opened
	engine engine.Engine
	deaths engine.Deaths
	failed error // the reason for not opening the engine again: it ended too often; nil: it may be opened
	closed bool
}

func newEngines(own engine.Name, openers map[engine.Name]opener, c *Cloud, dir string) *engines {
	e := &engines{own: own, all: map[engine.Name]*lazyEngine{}, opened: c.keptBy, check: c.options.Service.checkEngine}
	for name, open := range openers {
		e.all[name] = &lazyEngine{open: func(ctx context.Context) (engine.Engine, error) { return open(ctx, c, dir) }}
	}
	return e
}

// get returns an engine, and opens it if necessary. "" means the cloud's own engine. If the
// machine cannot run the engine, get returns an error for the client, and the next call tries
// again.
func (e *engines) get(ctx context.Context, name engine.Name) (engine.Engine, error) {
	name = cmp.Or(name, e.own)
	limited, cancel := context.WithTimeoutCause(ctx, openDeadline, fmt.Errorf("it did not start within %v", openDeadline))
	defer cancel()
	opened, err := e.open(limited, name)
	if err != nil && !errors.Is(err, lifecycle.ErrClosed) && ctx.Err() == nil {
		return nil, &lifecycle.RefusedError{Reason: fmt.Sprintf("not supported by this local cloud: the engine %s: %v", name, err)}
	}
	return opened, err
}

// openDeadline bounds the time for opening an engine that is not the cloud's own.
const openDeadline = 30 * time.Second

func (e *engines) open(ctx context.Context, name engine.Name) (engine.Engine, error) {
	l := e.all[name]
	if l == nil {
		return nil, fmt.Errorf("there is no engine %q", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, lifecycle.ErrClosed
	}
	if l.engine != nil {
		select {
		case <-l.engine.Done():
		default:
			return l.engine, nil
		}
		if died := l.engine.Err(); l.deaths.TooMany(time.Now()) {
			l.failed = fmt.Errorf("%w; it has ended %d times within %v", died, engine.MaxDeaths, engine.DeathsWithin)
		}
		_ = l.engine.Close() // the engine ended by itself, and its sandboxes ended with it
		l.engine = nil
	}
	if l.failed != nil {
		return nil, l.failed
	}
	opened, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.check(opened.Report()); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	l.engine = opened
	e.latest.Store(name, opened)
	e.opened(opened)
	return opened, nil
}

// noDiskLimit reports whether an engine has no disk limit for its sandboxes. It does not open
// the engine: a container daemon that has not been opened counts as having no limit.
func (e *engines) noDiskLimit(name engine.Name) bool {
	opened, known := e.latest.Load(name)
	if !known {
		return name == engine.Docker
	}
	return opened.(engine.Engine).Report().Promises[engine.DiskLimit] != ""
}

// close closes all engines. Afterwards no engine can be opened.
func (e *engines) close() error {
	var err error
	for _, l := range e.all {
		l.mu.Lock()
		l.closed = true
		if l.engine != nil {
			err = errors.Join(err, l.engine.Close())
		}
		l.mu.Unlock()
	}
	return err
}

// architecture returns the processor architecture of images for the cloud's own engine. A
// container daemon may run on another machine.
func (c *Cloud) architecture() string {
	if keeper, keeps := c.ownEngine().(imageKeeper); keeps {
		return keeper.Architecture()
	}
	return runtime.GOARCH
}

// ofRoom reports whether the sandboxes of an engine have access to the programs and the Python
// of this machine.
func ofRoom(report engine.Report) bool {
	return report.Engine == engine.Room || report.Engine == engine.GVisor
}

// buildTarget returns the properties of an engine for builds.
func (c *Cloud) buildTarget(ctx context.Context, name engine.Name) (builds.Target, error) {
	e, err := c.engines.get(ctx, name)
	if err != nil {
		return builds.Target{}, err
	}
	report := e.Report()
	t := builds.Target{Machine: fmt.Sprintf("%s %d %s", report.Isolation, report.IDs, c.python.Python)}
	if report.IDs == 1 {
		t.OneUser = "not supported by the isolation of this local cloud: sandboxes have only one user id, of root and user; as root, or with /etc/subuid, they have many"
	}
	switch {
	case report.Engine == engine.Wasm:
		t.Refusal, t.NoImages = guest.NoProcesses, report.Promises[engine.Images]
	case report.Engine == engine.Kubernetes:
		t.Refusal, t.ByReference = report.Promises[engine.SharedLayers], true
	case !ofRoom(report):
		t.Machine = string(report.Engine)
		t.OneUser = fmt.Sprintf("not supported by the %s engine: the containers of its built-in templates have one user, that of their image: begin with an image", report.Engine)
		if t.User = c.options.Docker.User; t.User != "" {
			t.OneUser = fmt.Sprintf("not supported by the %s engine: all its containers have the user %s of local.DockerParams.User: leave that out, and sandboxes run as the last USER", report.Engine, t.User)
		}
		if based, moves := e.(interface {
			DefaultImage(ctx context.Context) (string, error)
		}); moves {
			t.Base = based.DefaultImage
		}
		t.NoImages = report.Promises[engine.Images]
		if keeper, keeps := e.(imageKeeper); keeps && t.NoImages == "" {
			t.Images, t.Has, t.Chosen = keptImages{c, keeper}, keeper.Has, t.User == ""
			t.Machine += " " + keeper.Architecture()
		}
	case report.Isolation != engine.Full:
		t.Refusal = "its sandboxes have no root directory of their own, which isolation full gives them"
	default:
		t.Images, t.Unpack = c.images, e.UnpackTar
	}
	return t, nil
}
