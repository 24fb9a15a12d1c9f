package cloud

import (
	"bufio"
	"cmp"
	"context"
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
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/headers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// launch starts a sandbox. If the sandbox does not continue from saved memory, launch then runs the
// commands of the sandbox's template. In saved memory, these commands already run.
func (c *Cloud) launch(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
	c.telemetry.Open(spec.ID) // not in open, because sandboxes of builds use the logs of builds
	all, err := c.shownTo(ctx, spec)
	if err != nil {
		return nil, err
	}
	r, err := c.open(ctx, spec, all)
	if err != nil {
		return nil, err
	}
	if spec.Memory == "" { // with saved memory, the template's commands already run
		if err := r.begin(ctx, spec); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r.instance(), nil
}

// open starts a sandbox and makes its ports reachable. all are the mounts that the sandbox gets
// without a request. If the engine ends by itself during the call, open waits for the next engine
// and tries again.
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
	denials := c.newDenials(ctx, spec.ID)
	egress := c.egress(spec.ID, spec.Egress, denials, spec.Asks)
	spec.Egress = egress.Rules
	c.python.NoteUse() // noted for each sandbox, because a cloud may run for months
	shown, closeAll, err := c.show(spec.Mounts)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	shown = append(shown, all...)
	door, authority, err := c.newDoor(spec, denials)
	if err != nil {
		return nil, err
	}
	if door != nil {
		egress.Door = door
		door.Set(spec.Egress, egress.Reach)
	}
	names := egress.ServiceNames(ctx)
	egress.Listed = len(names) > 0
	shared, release, err := c.holdVolumes(spec.Volumes)
	if err != nil {
		return nil, startError(err)
	}
	sandbox, err := by.NewSandbox(ctx, engine.SandboxOptions{
		ID: spec.ID, Limits: c.limitsFor(report.Engine, spec), Config: c.config(spec, report), Egress: egress, Names: names, Layers: spec.Layers, Files: spec.Files, Memory: spec.Memory, Volumes: shared, Mounts: shown, Image: spec.Template.Image,
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
	r := c.reach(spec, sandbox, report)
	r.denials, r.door, r.release, r.listed = denials, door, release, egress.Listed
	return r, nil
}

// reach makes the ports of a sandbox reachable.
func (c *Cloud) reach(spec lifecycle.Spec, sandbox engine.Sandbox, report engine.Report) *reachable {
	var use func()
	if spec.Use != nil {
		use = spec.Use.Note
	}
	c.router.Add(edge.Sandbox{
		Use: use,
		ID:  spec.ID, AccessToken: spec.AccessToken, TrafficToken: spec.TrafficToken, PublicPorts: spec.PublicPorts, MaskHost: spec.MaskHost, HTTPSPorts: spec.HTTPSPorts,
		Dial: func(ctx context.Context, port int) (net.Conn, error) {
			conn, err := sandbox.Dial(ctx, port)
			return conn, edgeError(err)
		},
	})
	r := &reachable{
		Sandbox: sandbox, cloud: c, engine: report, id: spec.ID, asks: spec.Asks, token: spec.AccessToken,
		below: spec.Template.Resources, cpus: c.limitsFor(report.Engine, spec).CPUs,
	}
	c.telemetry.Run(spec.ID, r.cpus, sandbox.Usage)
	return r
}

// newDenials returns the denials of a sandbox. Denials may be added as long as the sandbox lives.
func (c *Cloud) newDenials(ctx context.Context, id string) *network.Denials {
	ctx = context.WithoutCancel(ctx)
	return &network.Denials{
		Tell:        func(d network.Denial) { c.tellDenial(ctx, id, d) },
		TellFailure: func(err error) { c.tellFailure(ctx, id, err) },
	}
}

// newDoor returns the door that adds headers to the requests of a sandbox, and checks them. It also returns the
// certificate of the door's authority, for programs in the sandbox. If the sandbox has no header
// rules, newDoor returns nil for both.
func (c *Cloud) newDoor(spec lifecycle.Spec, denials *network.Denials) (*headers.Door, []byte, error) {
	if !spec.Headers {
		return nil, nil, nil
	}
	authority, err := headers.NewAuthority(spec.ID)
	if err != nil {
		return nil, nil, err
	}
	door := headers.New(headers.Options{Authority: authority, Secret: c.secrets.Value, Roots: c.options.Roots, Denied: denials.Add})
	return door, authority.PEM(), nil
}

// holdVolumes returns the volumes of a sandbox. The volumes cannot be deleted until release is
// called.
func (c *Cloud) holdVolumes(mounts []lifecycle.VolumeMount) (shared []engine.Volume, release func(), err error) {
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

// startError converts the error of a sandbox that cannot start on this machine. The new error names
// the cause: a field of the request, or an option of the cloud. Any other error is returned
// unchanged.
func startError(err error) error {
	if errors.Is(err, engine.ErrTooLarge) {
		return &lifecycle.RefusedError{Reason: fmt.Sprintf("envVars are too large: a sandbox takes %d KiB in all", guest.MaxConfig>>10)}
	}
	lack, lacks := errors.AsType[*engine.LackError](err)
	var what string
	switch {
	case lacks:
		what = partOf(lack.Feature)
	case errors.Is(err, volumes.ErrNoSize):
		what = partOf(engine.Volumes)
	case errors.Is(err, engine.ErrLimits):
		what = "the limits it was started with"
	default:
		return err
	}
	return &lifecycle.RefusedError{Unsupported: lacks, Reason: fmt.Sprintf("not supported by this local cloud: %s: %v", what, err)}
}

// wake resumes a sandbox because a request to the sandbox has arrived.
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
	// This includes a sandbox that cannot be resumed: it exists, so the client may try again.
	return fmt.Errorf("%w: %w", edge.ErrBusy, err)
}

// asleep returns those paused sandboxes that a request would resume. If id is not "", asleep returns
// at most the sandbox with this id.
func (c *Cloud) asleep(id string) []edge.Sandbox {
	var found []*lifecycle.Sandbox
	if id == "" {
		found = c.sandboxes.List((*lifecycle.Sandbox).Wakes)
	} else if sb, err := c.sandboxes.Get(id); err == nil && sb.Wakes() {
		found = append(found, &sb)
	}
	all := make([]edge.Sandbox, len(found))
	for i, sb := range found {
		all[i] = edge.Sandbox{ID: sb.ID, AccessToken: sb.AccessToken, TrafficToken: sb.TrafficToken, PublicPorts: sb.PublicPorts()}
	}
	return all
}

// tellDenial logs the denial of a connection from a sandbox, and records it as an event.
func (c *Cloud) tellDenial(ctx context.Context, sandbox string, d network.Denial) {
	c.logger("network").InfoContext(ctx, "denied to a sandbox", "sandbox", sandbox, "host", d.Host, "port", d.Port, "rule", d.Rule)
	c.log.Denied(sandbox, d.Host, int(d.Port))
	c.sandboxes.Refused(sandbox, d.Host, int(d.Port), d.Rule)
}

// tellFailure logs that the egress proxy of a sandbox failed to connect.
func (c *Cloud) tellFailure(ctx context.Context, sandbox string, err error) {
	c.logger("network").WarnContext(ctx, "the egressProxy of a sandbox failed", "sandbox", sandbox, "error", err)
}

// tellUse logs that a sandbox connected to a service of this machine.
func (c *Cloud) tellUse(sandbox string, use network.Use) {
	log := c.logger("network")
	if use.Err != nil {
		log.WarnContext(c.life, "a service of this machine did not accept the connection of a sandbox", "sandbox", sandbox, "service", use.Target, "address", use.Address, "error", use.Err)
		return
	}
	log.InfoContext(c.life, "a sandbox connected to a service of this machine", "sandbox", sandbox, "service", use.Target, "address", use.Address)
}

// logger returns a logger for messages of the component name. Messages about a sandbox are also
// added to that sandbox's log.
func (c *Cloud) logger(name string) *slog.Logger { return c.telemetry.Logger(c.options.Logger, name) }

// warmConfig returns the configuration of the zygote. It returns nil if there is no Python.
func (c *Cloud) warmConfig() *guest.Config {
	if c.python.Level == pyenv.Absent {
		return nil
	}
	return &guest.Config{System: c.system(), Python: interpreter(c.python)}
}

// system returns the variables that every process of a sandbox has.
func (c *Cloud) system() map[string]string {
	system := map[string]string{}
	for _, v := range c.python.Vars {
		name, value, _ := strings.Cut(v, "=")
		system[name] = value
	}
	return system
}

// config returns the configuration of a sandbox's envd. It includes the Python of this machine
// only if the engine is a room and the sandbox has no image.
func (c *Cloud) config(spec lifecycle.Spec, by engine.Report) guest.Config {
	limits := c.limitsFor(by.Engine, spec)
	config := guest.Config{
		SandboxID: spec.ID, TemplateID: spec.Template.ID, User: spec.Template.User, Workdir: spec.Template.Workdir, AccessToken: spec.AccessToken,
		Envs:        maps.Clone(spec.Envs),
		MemoryBytes: uint64(limits.MemoryBytes), CPUs: int(math.Ceil(limits.CPUs)),
		Offline: spec.Egress.DenyAll(), Authority: spec.Headers,
	}
	if by.Promises[engine.NetworkRules] == "" { // connections of programs come to the cloud
		config.Proxy, config.CloudPort = c.needsProxy(spec.Egress, by), c.relayPort()
	}
	image := spec.Template.Image
	if image != nil {
		config.Image = image.Reference
	}
	switch {
	case !ofRoom(by):
	case image != nil: // the image has its own programs
		config.Python, config.Path = []string{"python3"}, cmp.Or(spec.Envs["PATH"], imagePath)
	default:
		config.System, config.Python, config.Path = c.system(), interpreter(c.python), searchPath(c.python)
	}
	return config
}

// needsProxy reports whether the environment of programs names the proxy. It does in three cases:
// there is no other egress path, only another proxy can resolve outside names, or most traffic is
// denied. In the last case the proxy can explain the denial. A refused connection explains nothing.
func (c *Cloud) needsProxy(rules *network.Rules, by engine.Report) bool {
	return rules.DenyAll() || c.dialer.Proxy != nil || by.Egress != engine.EgressTransparent
}

// edgeError converts an error of an engine to an error of package edge.
func edgeError(err error) error {
	switch {
	case errors.Is(err, engine.ErrPortClosed):
		return fmt.Errorf("%w: %w", edge.ErrPortClosed, err)
	case errors.Is(err, &engine.LackError{Feature: engine.Ports}):
		return fmt.Errorf("%w: %w", edge.ErrWithoutPorts, err)
	case errors.Is(err, engine.ErrGone):
		return fmt.Errorf("%w: %w", edge.ErrGone, err)
	case errors.Is(err, engine.ErrTooMany):
		return fmt.Errorf("%w: %w", edge.ErrTooMany, err)
	}
	return err
}

// reachable is a sandbox that is registered with the router until the sandbox is closed.
type reachable struct {
	engine.Sandbox
	cloud   *Cloud
	engine  engine.Report
	id      string
	denials *network.Denials
	asks    *network.Asks
	below   engine.Resources // resources of the template
	cpus    float64          // processors that the sandbox can use; changes only while the sandbox is in transition
	door    *headers.Door    // nil if the sandbox has no header rules
	token   string           // of envd
	release func()           // releases the volumes of the sandbox
	listed  bool             // its /etc/hosts has services of this machine
}

// Close ends the sandbox.
func (r *reachable) Close() error { return r.leave(r.Sandbox.Close) }

// leave makes the sandbox unreachable, and ends it for this cloud.
func (r *reachable) leave(end func() error) error {
	r.cloud.router.Remove(r.id)
	r.cloud.telemetry.Rest(r.id)
	err := end()
	if r.door != nil {
		r.door.Close()
	}
	r.release()
	if n := r.denials.Count(); n > 0 {
		r.cloud.logger("network").InfoContext(context.Background(), "denied to a sandbox in all", "sandbox", r.id, "connections", n)
	}
	return err
}

// Suspends reports whether a pause ends the processes of the sandbox, and keeps its home.
func (r *reachable) Suspends() bool {
	s, may := r.Sandbox.(engine.Suspender)
	return may && s.Suspends()
}

// Pause ends the connections into the sandbox and then stops its processes.
func (r *reachable) Pause(ctx context.Context) error {
	r.cloud.router.Pause(r.id)
	r.cloud.telemetry.Rest(r.id)
	if err := r.Freeze(ctx); err != nil {
		r.run()
		return err
	}
	return nil
}

// Resume lets the processes of the sandbox run, and makes it reachable again.
func (r *reachable) Resume(ctx context.Context) error {
	if err := r.Thaw(ctx); err != nil {
		return err
	}
	r.run()
	return nil
}

// run makes the sandbox reachable and starts to measure it.
func (r *reachable) run() {
	r.cloud.router.Resume(r.id)
	r.cloud.telemetry.Run(r.id, r.cpus, r.Usage)
}

// Checkpoint saves the files of the sandbox and, if memory is not "", its memory. With share, the
// files become a layer if the engine has layers. During the call, the sandbox is stopped and
// connections into it wait. If the sandbox cannot continue afterwards, it ends.
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
	if err == nil { // last, because the saved memory belongs to these files
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

// Resize changes the resources of the sandbox. During the call, the sandbox is stopped, so that its use
// does not grow, and connections into it wait. If the sandbox cannot continue afterwards, it ends.
func (r *reachable) Resize(ctx context.Context, to engine.Resources) error {
	limits := r.cloud.limitsWith(r.engine.Engine, to.Over(r.below))
	if err := r.Hold(ctx); err != nil {
		return err
	}
	err := startError(r.Sandbox.Resize(ctx, limits))
	if failed := r.Thaw(context.WithoutCancel(ctx)); failed != nil {
		return errors.Join(err, fmt.Errorf("it cannot run on: %w", failed), r.Sandbox.Close())
	}
	if err != nil {
		return err
	}
	r.cpus = limits.CPUs
	r.cloud.telemetry.Run(r.id, r.cpus, r.Usage)
	if err := r.tell(ctx, limits); err != nil {
		r.cloud.logger("lifecycle").WarnContext(ctx, "a sandbox reports its earlier resources: its envd does not answer", "sandbox", r.id, "error", err)
	}
	return nil
}

// tell tells envd the resources to report.
func (r *reachable) tell(ctx context.Context, l engine.Limits) error {
	ctx, cancel := context.WithTimeout(ctx, healthDeadline)
	defer cancel()
	client := envdclient.New(r.Dial, r.token)
	defer client.Close()
	return client.Resize(ctx, uint64(l.MemoryBytes), int(math.Ceil(l.CPUs)))
}

// saveFiles saves the files of the frozen sandbox. With share, the files become a layer if the engine
// has layers. If the files become a layer, the caller must call complete. Otherwise complete is nil.
func (r *reachable) saveFiles(ctx context.Context, dir string, share bool) (complete func() error, err error) {
	if share {
		if complete, err := r.SaveLayer(ctx, dir); !errors.Is(err, &engine.LackError{Feature: engine.SharedLayers}) {
			return complete, err
		}
	}
	return nil, r.Save(ctx, dir)
}

// Busy reports whether code runs in the sandbox, or a client follows a command.
func (r *reachable) Busy(ctx context.Context) (bool, error) {
	client := envdclient.New(r.Dial, r.token)
	defer client.Close()
	return client.Busy(ctx)
}

// healthDeadline bounds the time within which envd must answer Healthy.
const healthDeadline = 3 * time.Second

// Healthy returns an error if envd does not answer.
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

// SetEgress replaces the rules for the sandbox's outgoing connections.
func (r *reachable) SetEgress(rules *network.Rules) {
	egress := r.cloud.egress(r.id, rules, r.denials, r.asks)
	egress.Listed = r.listed
	if r.door != nil {
		egress.Door = r.door
		r.door.Set(rules, egress.Reach)
	}
	r.Sandbox.SetEgress(egress)
}

// egress returns the network access of a sandbox with these rules. Rules may allow a host without
// naming it. If the cloud has the option Ask, the function in Ask decides about such hosts.
func (c *Cloud) egress(id string, rules *network.Rules, denials *network.Denials, asks *network.Asks) *network.Egress {
	e := &network.Egress{Dialer: c.dialer, Rules: rules, Denials: denials, Asks: asks, Peers: c.peers.paths, Services: c.services}
	e.Used = func(use network.Use) { c.tellUse(id, use) }
	if ask := c.options.Ask; ask != nil && !rules.Asks() {
		e.Rules = rules.AskingOtherwise()
		e.Ask = func(ctx context.Context, to network.Target) bool { return ask(ctx, id, to.Host, int(to.Port)) }
	}
	return e
}

// orAbsent returns the result of a search for Python. If the search found no Python, orAbsent
// replaces the error by an absent Python, because a machine without Python can still run commands.
func orAbsent(env *pyenv.Env, err error) (*pyenv.Env, error) {
	if errors.Is(err, pyenv.ErrNoPython) {
		return &pyenv.Env{Level: pyenv.Absent, Note: err.Error()}, nil
	}
	return env, err
}

// interpreter returns the command that runs kernels. It returns nil if there is no Python.
func interpreter(env *pyenv.Env) []string {
	if env.Level == pyenv.Absent {
		return nil
	}
	return []string{env.Python}
}
