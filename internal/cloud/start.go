package cloud

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
)

// start starts a cloud in the steps of starting.steps. If a step fails, start undoes the completed
// steps.
func start(ctx context.Context, o Options, openers map[engine.Name]opener) (*Cloud, error) {
	if err := o.complete(ctx); err != nil {
		return nil, fmt.Errorf("cloud: %w", err)
	}
	s := &starting{openers: openers, Cloud: &Cloud{
		options: o, python: o.Python, telemetry: telemetry.New(telemetry.Options{CPUs: o.Limits.CPUs}),
		dialer: &network.Dialer{Policy: o.Policy, Proxy: network.EnvironmentProxy(), ProxyNames: o.ProxyNames},
	}}
	for _, step := range s.steps() {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("cloud: %w", errors.Join(err, s.end()))
		}
	}
	c, dir := s.Cloud, s.dir
	c.assemble(s.config)
	c.life, c.endLife = context.WithCancel(context.WithoutCancel(ctx))
	c.close = sync.OnceValue(func() error { return c.shutDown(dir) })
	err := c.adopt(ctx) // before the first request, which may be about one of them
	c.serve(s.listener)
	if err != nil {
		return nil, fmt.Errorf("cloud: sandboxes of the engine: %w", errors.Join(err, c.close()))
	}
	return c, nil
}

// starting is a cloud during its start.
type starting struct {
	*Cloud

	openers  map[engine.Name]opener
	dir      string      // directory of the instance
	config   *tls.Config // configuration of https
	listener net.Listener
	undo     []func() error // undoes the completed steps, from the last to the first
}

// steps returns those steps of the start that can fail, in order.
func (s *starting) steps() []func(context.Context) error {
	return []func(context.Context) error{
		s.findPython,
		s.openHostMounts,
		s.makeInstanceDir,
		s.openStore,
		s.openService,
		s.listen,
		s.nameServices,
		s.openMetrics,
		s.openEngine,
		s.openVolumes,
		s.openLayers,
	}
}

// end undoes the completed steps.
func (s *starting) end() (err error) {
	for _, undo := range slices.Backward(s.undo) {
		err = errors.Join(err, undo())
	}
	return err
}

// then appends a function to s.undo. The function undoes a completed step.
func (s *starting) then(undo func() error) { s.undo = append(s.undo, undo) }

func (s *starting) findPython(ctx context.Context) (err error) {
	if s.python == nil {
		s.python, err = findPython(ctx)
	}
	return err
}

func (s *starting) openHostMounts(context.Context) (err error) {
	o := s.options
	if s.mounts, err = mounts.Open(mounts.Options{All: o.Mounts, Allow: o.AllowMounts}); err != nil {
		return err
	}
	s.then(s.mounts.Close)
	if s.dist, err = openDist(o.PyodideDist); err != nil {
		return err
	}
	s.then(s.dist.Close)
	return nil
}

func (s *starting) makeInstanceDir(context.Context) (err error) {
	if s.dir, err = newInstanceDir(s.options.Dir); err != nil {
		return err
	}
	s.then(func() error { return s.removeInstance(s.dir) })
	return nil
}

func (s *starting) openStore(ctx context.Context) (err error) {
	if s.store, err = openStore(ctx, s.options.State, s.dir); err != nil {
		return err
	}
	s.then(s.store.Close)
	if s.options.Service == nil { // otherwise the only keys are those of its files
		s.options.Key = cmp.Or(s.options.Key, keyOf(s.store))
	}
	return nil
}

func (s *starting) listen(ctx context.Context) (err error) {
	if s.config == nil {
		authority, trust, err := newAuthority(s.options, s.dir)
		if err != nil {
			return err
		}
		s.config, s.trust = authority.Config(), trust
	}
	if s.listener, s.limit, err = listen(ctx, s.options, s.config); err != nil {
		return err
	}
	s.address = s.listener.Addr()
	s.then(s.listener.Close)
	return nil
}

// nameServices checks the services of this machine that sandboxes may reach. It runs after listen,
// because the cloud itself must not be one of them. A socket that sandboxes can replace by a link to
// another one would let them reach each socket of this machine.
func (s *starting) nameServices(context.Context) (err error) {
	if len(s.options.HostServices) == 0 {
		return nil
	}
	for _, one := range s.options.HostServices {
		path, socket := strings.CutPrefix(one.Address, "unix:")
		if !socket {
			continue
		}
		if dir := s.mounts.WritableAbove(path); dir != "" {
			return fmt.Errorf("the socket %q of the service %q is in %s, which sandboxes may change: they could replace the socket by a link to another one", path, one.Name, dir)
		}
	}
	s.services, err = network.NewServices(s.options.HostServices, uint16(s.address.(*net.TCPAddr).Port))
	return err
}

func (s *starting) openEngine(ctx context.Context) error {
	s.engines = newEngines(s.options.Engine, s.openers, s.Cloud, s.dir)
	own, err := s.engines.open(ctx, s.options.Engine)
	if err != nil {
		return err
	}
	s.then(s.engines.close)
	if s.options.Ask != nil {
		if err := own.Report().Promises.Check(engine.NetworkRules); err != nil {
			return fmt.Errorf("questions about hosts (--ask, local.WithAsk): %w", err)
		}
	}
	if s.services != nil {
		if err := check(own.Report(), engine.HostServices, "services of this machine (--host-service, local.WithHostService)"); err != nil {
			return err
		}
	}
	return s.avoidHidden(ctx, own.Report().Hidden)
}

func (s *starting) openVolumes(ctx context.Context) error {
	own := s.ownEngine().Report()
	s.volumes = volumes.New(volumes.Options{Store: s.store, Logger: s.options.Logger, OneID: own.IDs == 1, Size: s.options.VolumeSize})
	s.then(s.volumes.Close)
	return s.volumes.CheckSize(ctx)
}

func (s *starting) openLayers(context.Context) (err error) {
	s.kept = layers.Open(layers.Options{Store: s.store, Sharing: s.sharing, Unneeded: s.collectImages, Logger: s.options.Logger})
	s.images, err = s.openImages(s.kept)
	return err
}

// complete checks the options and sets their defaults.
func (o *Options) complete(ctx context.Context) (err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Domain = cmp.Or(o.Domain, localtls.Localhost)
	if err := localtls.CheckDomain(o.Domain); err != nil {
		return err
	}
	o.Engine = cmp.Or(o.Engine, defaultEngine)
	if err := o.completeService(); err != nil {
		return err
	}
	o.boundDocker(ctx)
	o.Limits, err = limitsOf(ctx, *o)
	return err
}

// avoidHidden replaces the Python environment by the Python of the machine if hidden is not empty.
// hidden lists the environment's directories that sandboxes cannot enter.
func (c *Cloud) avoidHidden(ctx context.Context, hidden []string) (err error) {
	if len(hidden) == 0 {
		return nil
	}
	remedy := remedyOf(hidden)
	if c.python, err = orAbsent(pyenv.System(ctx, remedy)); err != nil {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	if c.python.Level == pyenv.Absent {
		c.python.Note += "; " + remedy
	}
	return nil
}

// remedyOf returns the remedy for the directories in hidden, which sandboxes cannot enter.
func remedyOf(hidden []string) string {
	return fmt.Sprintf("sandboxes here run as an id that cannot enter %s: run as an ordinary user, or set XDG_CACHE_HOME to a directory open to all and run `e2bctl local setup`", strings.Join(hidden, ", "))
}
