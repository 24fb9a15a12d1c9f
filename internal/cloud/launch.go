package cloud

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/edge"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/headers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// launch starts a sandbox and its template's commands.
func (c *Cloud) launch(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
	c.telemetry.Open(spec.ID) // not in open: sandboxes of builds have the logs of builds
	all, err := c.shownTo(ctx, spec)
	if err != nil {
		return nil, err
	}
	r, err := c.open(ctx, spec, all)
	if err != nil {
		return nil, err
	}
	if spec.Memory == "" { // otherwise the template's commands run already
		if err := r.begin(ctx, spec); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// open starts a sandbox and makes its ports reachable. all are mounts besides the requested
// ones. If the engine dies meanwhile, it waits for the next one.
func (c *Cloud) open(ctx context.Context, spec lifecycle.Spec, all []engine.Mount) (*reachable, error) {
	for {
		r, err := c.openOnce(ctx, spec, all)
		if !errors.Is(err, engine.ErrEnded) || c.life.Err() != nil {
			return r, err
		}
	}
}

func (c *Cloud) openOnce(ctx context.Context, spec lifecycle.Spec, all []engine.Mount) (*reachable, error) {
	by, err := c.engines.get(ctx, spec.Template.Engine)
	if err != nil {
		return nil, err
	}
	report := by.Report()
	if err := checkSpec(report, spec, len(all) > 0); err != nil {
		return nil, err
	}
	// Denials can occur for as long as the sandbox lives.
	denials := &network.Denials{
		Tell:        func(d network.Denial) { c.tellDenial(context.WithoutCancel(ctx), spec.ID, d) },
		TellFailure: func(err error) { c.tellFailure(context.WithoutCancel(ctx), spec.ID, err) },
	}
	egress := c.egress(spec.ID, spec.Egress, denials, spec.Asks)
	spec.Egress = egress.Rules
	config, err := json.Marshal(c.config(spec, report))
	if err != nil {
		return nil, err
	}
	if len(config) > guest.MaxConfig {
		return nil, &lifecycle.RefusedError{Reason: fmt.Sprintf("envVars are too large: a sandbox takes %d KiB in all", guest.MaxConfig>>10)}
	}
	c.python.NoteUse() // a cloud may run for months
	shown, closeAll, err := c.show(spec.Mounts)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	shown = append(shown, all...)
	door, authority, err := c.newDoor(spec)
	if err != nil {
		return nil, err
	}
	if door != nil {
		egress.Door = door
		door.Set(spec.Egress, egress.Reach)
	}
	shared, release, err := c.hold(spec.Volumes)
	if err != nil {
		return nil, startError(err)
	}
	sandbox, err := by.NewSandbox(ctx, engine.SandboxOptions{
		ID: spec.ID, Limits: c.options.Limits, Config: config, Egress: egress, Layers: spec.Layers, Files: spec.Files, Memory: spec.Memory, Volumes: shared, Mounts: shown, Image: spec.Template.Image,
		Tell:      func(line []byte) { c.telemetry.Inside(spec.ID, line) },
		Authority: authority,
	})
	if err != nil {
		if errors.Is(err, engine.ErrEnded) {
			<-by.Done()
		}
		release()
		if door != nil {
			door.Close()
		}
		return nil, startError(err)
	}
	c.router.Add(edge.Sandbox{
		ID: spec.ID, AccessToken: spec.AccessToken, TrafficToken: spec.TrafficToken, MaskHost: spec.MaskHost, HTTPSPorts: spec.HTTPSPorts,
		Dial: func(ctx context.Context, port int) (net.Conn, error) {
			conn, err := sandbox.Dial(ctx, port)
			return conn, edgeError(err)
		},
	})
	c.telemetry.Run(spec.ID, sandbox.Usage)
	return &reachable{Sandbox: sandbox, cloud: c, engine: report, id: spec.ID, denials: denials, asks: spec.Asks, door: door, release: release}, nil
}

// newDoor returns the door that puts headers into the requests of a sandbox, and the certificate
// of its authority, for programs inside; nil for a sandbox without such rules.
func (c *Cloud) newDoor(spec lifecycle.Spec) (*headers.Door, []byte, error) {
	if !spec.Headers {
		return nil, nil, nil
	}
	authority, err := headers.NewAuthority(spec.ID)
	if err != nil {
		return nil, nil, err
	}
	door := headers.New(headers.Options{Authority: authority, Secret: c.secrets.Value, Roots: c.options.Roots})
	return door, authority.PEM(), nil
}

// hold keeps the volumes of a sandbox from being deleted until release is called.
func (c *Cloud) hold(mounts []lifecycle.VolumeMount) (shared []engine.Volume, release func(), err error) {
	var held []func()
	release = sync.OnceFunc(func() {
		for _, one := range held {
			one()
		}
	})
	for _, m := range mounts {
		mount, one, err := c.volumes.Hold(m.ID)
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("the volume %s: %w", m.Name, err)
		}
		held, shared = append(held, one), append(shared, engine.Volume{Dir: mount.Dir, Path: m.Path, Clone: mount.Clone})
	}
	return shared, release, nil
}

// startError converts the error of a sandbox that cannot start on this machine: it names the
// part of the request, or of the options of this cloud. It returns any other error as it is.
func startError(err error) error {
	for cause, what := range map[error]string{
		engine.ErrNoAuthority: "network.rules", engine.ErrNoMounts: "mounts", engine.ErrNoVolumes: "volumeMounts", volumes.ErrNoSize: "volumeMounts",
		engine.ErrLimits: "the limits it was started with",
	} {
		if errors.Is(err, cause) {
			return &lifecycle.RefusedError{Reason: fmt.Sprintf("not supported by this local cloud: %s: %v", what, err)}
		}
	}
	return err
}

// wake resumes a sandbox for a request.
func (c *Cloud) wake(ctx context.Context, id string) error {
	err := c.sandboxes.Wake(ctx, id)
	_, limit := errors.AsType[*lifecycle.LimitError](err)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, lifecycle.ErrAsleep):
		return fmt.Errorf("%w: %w", edge.ErrAsleep, err)
	case limit:
		return fmt.Errorf("%w: %w", edge.ErrLimit, err)
	}
	// Also for a sandbox that cannot be resumed: it exists, so the client may try again.
	return fmt.Errorf("%w: %w", edge.ErrBusy, err)
}

// asleep returns the paused sandboxes that a request resumes: the one with an id, or all for "".
func (c *Cloud) asleep(id string) []edge.Sandbox {
	var found []*lifecycle.Sandbox
	if id == "" {
		found = c.sandboxes.List((*lifecycle.Sandbox).Wakes)
	} else if sb, err := c.sandboxes.Get(id); err == nil && sb.Wakes() {
		found = append(found, &sb)
	}
	all := make([]edge.Sandbox, len(found))
	for i, sb := range found {
		all[i] = edge.Sandbox{ID: sb.ID, AccessToken: sb.AccessToken, TrafficToken: sb.TrafficToken}
	}
	return all
}

// tellDenial logs that a sandbox was denied a connection.
func (c *Cloud) tellDenial(ctx context.Context, sandbox string, d network.Denial) {
	c.logger("network").InfoContext(ctx, "denied to a sandbox", "sandbox", sandbox, "host", d.Host, "port", d.Port, "rule", d.Rule)
	c.log.Denied(sandbox, d.Host, int(d.Port))
}

// tellFailure logs that the egress proxy of a sandbox did not make a connection.
func (c *Cloud) tellFailure(ctx context.Context, sandbox string, err error) {
	c.logger("network").WarnContext(ctx, "the egressProxy of a sandbox failed", "sandbox", sandbox, "error", err)
}

// logger returns a logger whose entries about a sandbox also go to that sandbox's log, under
// name.
func (c *Cloud) logger(name string) *slog.Logger { return c.telemetry.Logger(c.options.Logger, name) }

// warmConfig returns the configuration of the process from which kernels are forked; nil without
// a Python.
func (c *Cloud) warmConfig() *guest.Config {
	if c.python.Level == pyenv.Absent {
		return nil
	}
	return &guest.Config{System: c.system(), Python: interpreter(c.python)}
}

// system returns the variables of every process of a sandbox.
func (c *Cloud) system() map[string]string {
	system := map[string]string{}
	for _, v := range c.python.Vars {
		name, value, _ := strings.Cut(v, "=")
		system[name] = value
	}
	return system
}

// config returns the configuration of a sandbox's envd. It has the Python of this machine only
// in a room, and only if the sandbox is not made from an image.
func (c *Cloud) config(spec lifecycle.Spec, by engine.Report) guest.Config {
	config := guest.Config{
		SandboxID: spec.ID, TemplateID: spec.Template.ID, User: spec.Template.User, Workdir: spec.Template.Workdir, AccessToken: spec.AccessToken,
		Envs:        maps.Clone(spec.Envs),
		MemoryBytes: uint64(c.options.Limits.MemoryBytes), CPUs: int(math.Ceil(c.options.Limits.CPUs)),
		Proxy: c.needsProxy(spec.Egress, by), Offline: spec.Egress.DenyAll(),
		Authority: spec.Headers, CloudPort: c.relayPort(),
	}
	image := spec.Template.Image
	if image != nil {
		config.Image = image.Reference
	}
	switch {
	case !ofRoom(by):
	case image != nil: // it has programs of its own
		config.Python, config.Path = []string{"python3"}, cmp.Or(spec.Envs["PATH"], imagePath)
	default:
		config.System, config.Python, config.Path = c.system(), interpreter(c.python), searchPath(c.python)
	}
	return config
}

// needsProxy reports whether programs are told of the proxy. They are told if there is no other
// egress path, if only another proxy can resolve outside names, or if most traffic is denied: a
// proxy can explain that, a refused connection cannot.
func (c *Cloud) needsProxy(rules *network.Rules, by engine.Report) bool {
	return rules.DenyAll() || c.dialer.Proxy != nil || by.Egress != engine.EgressTransparent
}

// edgeError translates an error of an engine into one of package edge.
func edgeError(err error) error {
	switch {
	case errors.Is(err, engine.ErrPortClosed):
		return fmt.Errorf("%w: %w", edge.ErrPortClosed, err)
	case errors.Is(err, engine.ErrNoPorts):
		return fmt.Errorf("%w: %w", edge.ErrNoPorts, err)
	case errors.Is(err, engine.ErrGone):
		return fmt.Errorf("%w: %w", edge.ErrGone, err)
	case errors.Is(err, engine.ErrTooMany):
		return fmt.Errorf("%w: %w", edge.ErrTooMany, err)
	}
	return err
}

// reachable is a sandbox that the router knows until it is closed.
type reachable struct {
	engine.Sandbox
	cloud   *Cloud
	engine  engine.Report
	id      string
	denials *network.Denials
	asks    *network.Asks
	door    *headers.Door // nil: no headers
	release func()        // releases its volumes
}

func (r *reachable) Close() error {
	r.cloud.router.Remove(r.id)
	r.cloud.telemetry.Rest(r.id)
	err := r.Sandbox.Close()
	if r.door != nil {
		r.door.Close()
	}
	r.release()
	if n := r.denials.Count(); n > 0 {
		r.cloud.logger("network").InfoContext(context.Background(), "denied to a sandbox in all", "sandbox", r.id, "connections", n)
	}
	return err
}

// Pause ends the connections into the sandbox and stops it.
func (r *reachable) Pause(ctx context.Context) error {
	r.cloud.router.Pause(r.id)
	r.cloud.telemetry.Rest(r.id)
	if err := r.Freeze(ctx); err != nil {
		r.run()
		return err
	}
	return nil
}

// Resume lets the sandbox run and be reached again.
func (r *reachable) Resume(ctx context.Context) error {
	if err := r.Thaw(ctx); err != nil {
		return err
	}
	r.run()
	return nil
}

// run makes the sandbox reachable and measured.
func (r *reachable) run() {
	r.cloud.router.Resume(r.id)
	r.cloud.telemetry.Run(r.id, r.Usage)
}

// Checkpoint saves the files of the sandbox and, unless memory is "", its memory. With share,
// the files become a layer, if its engine has layers. The sandbox stops for that time;
// connections into it wait. If it cannot run on, it ends.
func (r *reachable) Checkpoint(ctx context.Context, dir, memory string, share bool) (shared bool, err error) {
	if err := r.Hold(ctx); err != nil {
		return false, err
	}
	if memory != "" {
		if err = r.SaveMemory(ctx, memory); err != nil {
			err = fmt.Errorf("%w: %w", lifecycle.ErrMemory, err)
		}
	}
	var complete func() error
	if err == nil { // after the memory, which belongs to these files
		complete, err = r.saveFiles(ctx, dir, share)
	}
	if failed := r.Thaw(context.WithoutCancel(ctx)); failed != nil {
		err = errors.Join(err, fmt.Errorf("it cannot run on: %w", failed), r.Sandbox.Close())
	}
	if err != nil || complete == nil {
		return false, err
	}
	return true, complete()
}

// saveFiles saves the files of the frozen sandbox. With share, they become a layer, if its
// engine has layers: then the caller calls complete, which is nil otherwise.
func (r *reachable) saveFiles(ctx context.Context, dir string, share bool) (complete func() error, err error) {
	if share {
		if complete, err := r.SaveLayer(ctx, dir); !errors.Is(err, engine.ErrNoLayers) {
			return complete, err
		}
	}
	return nil, r.Save(ctx, dir)
}

// healthDeadline bounds envd's time to report that it is healthy.
const healthDeadline = 3 * time.Second

// Healthy asks envd whether it answers.
func (r *reachable) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthDeadline)
	defer cancel()
	conn, err := r.Dial(ctx, protocol.PortEnvd)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envd/health", nil)
	if err != nil {
		return err
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("envd answers %s", answer.Status)
	}
	return nil
}

// SetEgress changes the rules for the sandbox's connections.
func (r *reachable) SetEgress(rules *network.Rules) {
	egress := r.cloud.egress(r.id, rules, r.denials, r.asks)
	if r.door != nil {
		egress.Door = r.door
		r.door.Set(rules, egress.Reach)
	}
	r.Sandbox.SetEgress(egress)
}

// egress returns the network access of a sandbox with these rules. If the cloud has a function that
// is asked, it decides about the hosts that the rules allow without naming them.
func (c *Cloud) egress(id string, rules *network.Rules, denials *network.Denials, asks *network.Asks) *network.Egress {
	e := &network.Egress{Dialer: c.dialer, Rules: rules, Denials: denials, Asks: asks, Peers: c.peers.paths}
	if ask := c.options.Ask; ask != nil && !rules.Asks() {
		e.Rules = rules.AskingOtherwise()
		e.Ask = func(ctx context.Context, to network.Target) bool { return ask(ctx, id, to.Host, int(to.Port)) }
	}
	return e
}

// orAbsent handles the result of a search for a Python: a machine without one can still run
// commands.
func orAbsent(env *pyenv.Env, err error) (*pyenv.Env, error) {
	if errors.Is(err, pyenv.ErrNoPython) {
		return &pyenv.Env{Level: pyenv.Absent, Note: err.Error()}, nil
	}
	return env, err
}

// interpreter returns the command that runs kernels; nil: there is none.
func interpreter(env *pyenv.Env) []string {
	if env.Level == pyenv.Absent {
		return nil
	}
	return []string{env.Python}
}
