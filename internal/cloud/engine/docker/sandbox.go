package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// sandbox is one container.
type sandbox struct {
	engine   *Engine
	id       string        // id of the sandbox
	name     string        // name of the container
	program  string        // path of the program in the container
	limits   engine.Limits // changes only in the turn of the standstill, except DiskBytes, which never changes
	handover *handover     // nil if the sandbox has no directories of the host
	attach   *attachment
	tunnel   *tunnel.Server
	exit     <-chan int64 // receives the exit status of the container
	forget   context.CancelFunc

	standstill link.Standstill

	reason atomic.Pointer[error]
	done   chan struct{}
	close  func() error
}

func (e *Engine) newSandbox(ctx context.Context, o engine.SandboxOptions) (_ *sandbox, err error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := e.check(o); err != nil {
		return nil, err
	}
	if err := e.removeLeftovers(ctx); err != nil {
		return nil, err
	}
	base, err := e.base(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &sandbox{engine: e, id: o.ID, limits: e.limits(o), done: make(chan struct{})}
	if s.handover, err = newHandover(o.Mounts); err != nil {
		return nil, err
	}
	if s.name, s.program, err = e.create(ctx, base.Image, o, s.handover); err != nil {
		return nil, errors.Join(err, s.handover.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard())
		}
	}()
	if o.Files != "" {
		if err := e.restore(ctx, s.name, o.Files); err != nil {
			return nil, err
		}
	}
	if err := e.show(ctx, s.name, e.commandUser(o), s.handover); err != nil { // after restore, which must not write into the host's directories
		return nil, err
	}
	if err := s.start(ctx, o, base.Removed); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, s.starved(err, e.limits(o))
	}
	if err := s.handover.detach(); err != nil {
		return nil, err
	}
	s.close = sync.OnceValue(s.end)
	e.mu.Lock()
	e.sandboxes[s] = struct{}{}
	e.mu.Unlock()
	e.watching.Go(func() {
		<-s.tunnel.Done()
		if s.reason.Load() == nil {
			s.fail(s.causeOfDeath())
		}
		_ = s.close() // the rest is removed later
	})
	return s, nil
}

// base returns the image below the sandbox. If the sandbox starts with saved files, base also
// returns the paths that the saved container had removed from the image.
func (e *Engine) base(ctx context.Context, o engine.SandboxOptions) (saved, error) {
	if o.Files != "" {
		return e.readSaved(ctx, o.Files)
	}
	image, err := e.image(ctx, o.Image)
	return saved{Image: image}, err
}

// check returns an error for options that a container cannot have.
func (e *Engine) check(o engine.SandboxOptions) error {
	if err := e.limits(o).Check(); err != nil {
		return err
	}
	return e.promises().CheckOptions(o)
}

// create makes the container, and returns its name and the path of the program in it.
func (e *Engine) create(ctx context.Context, image string, o engine.SandboxOptions, handover *handover) (name, program string, err error) {
	for {
		e.mu.Lock()
		copies, quota := e.copies || !e.program.current(), e.quota
		e.mu.Unlock()
		made, err := e.client.ContainerCreate(ctx, e.container(image, o, handover, copies, quota))
		switch {
		case err == nil && copies:
			if err := e.copyProgram(ctx, made.ID); err != nil {
				return "", "", errors.Join(err, e.remove(context.WithoutCancel(ctx), made.ID))
			}
			return made.ID, programIn(copies), nil
		case err == nil:
			return made.ID, programIn(copies), nil
		case handover.unseen(err) != nil:
			return "", "", handover.unseen(err)
		case quota && strings.Contains(err.Error(), "storage-opt"):
			e.mu.Lock()
			e.quota, e.noQuota = false, "the daemon says: "+err.Error()
			e.mu.Unlock()
		case !copies && strings.Contains(err.Error(), "bind source path does not exist"): // it has other files
			e.mu.Lock()
			e.copies = true
			e.mu.Unlock()
		default:
			return "", "", fmt.Errorf("create a container of %s: %w", image, err)
		}
	}
}

// cpuPeriod is the period, in microseconds, to which CPUQuota applies.
const cpuPeriod = 100_000

// limits returns the sandbox's limits. The engine's options replace zero limits.
func (e *Engine) limits(o engine.SandboxOptions) engine.Limits {
	limits := e.options.Limits(engine.Limits{})
	limits.MaxProcesses = cmp.Or(o.Limits.MaxProcesses, limits.MaxProcesses)
	limits = limits.With(engine.Resources{CPUs: o.Limits.CPUs, MemoryBytes: o.Limits.MemoryBytes, DiskBytes: o.Limits.DiskBytes}).WithDefaults()
	limits.CPUs = min(limits.CPUs, float64(max(e.info.NCPU, 1)))
	return limits
}

// Limits returns the limits of sandboxes that request no limits: limits, overridden by the options.
func (o Options) Limits(limits engine.Limits) engine.Limits {
	if o.MemoryBytes > 0 {
		limits.MemoryBytes = o.MemoryBytes
	}
	if o.CPUs > 0 {
		limits.CPUs = o.CPUs
	}
	if o.MaxProcesses > 0 {
		limits.MaxProcesses = o.MaxProcesses
	}
	return limits
}

// config returns the text of the configuration of envd, with the limits of the container.
func (e *Engine) config(o engine.SandboxOptions) ([]byte, error) {
	c, limits := &o.Config, e.limits(o)
	c.MemoryBytes, c.CPUs = uint64(limits.MemoryBytes), int(math.Ceil(limits.CPUs))
	if e.options.User != "" { // whichever user the template names
		c.User = ""
	}
	return o.EncodeConfig()
}

// user returns the user of a container; "" means the user that the container's image names. If a
// template has a user, the container runs as root: its envd starts commands as the user of the
// template, and kernels as root. If root lacks the capabilities for this, the whole container runs
// as the user of the template.
func (e *Engine) user(o engine.SandboxOptions) string {
	if o.Image != nil && e.options.User == "" && e.options.rootIsWhole() {
		return "0"
	}
	return e.commandUser(o)
}

// commandUser returns the user of commands; "" means the user that the image names.
func (e *Engine) commandUser(o engine.SandboxOptions) string {
	if e.options.User != "" || o.Image == nil {
		return e.options.User
	}
	switch o.Config.User {
	case "", "root", "user": // which are the same user here
		return "0"
	}
	return o.Config.User
}

// rootIsWhole reports whether root of a container keeps the capabilities to run processes of other
// users and to change their files.
func (o Options) rootIsWhole() bool {
	needed := []string{"ALL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
	return !slices.ContainsFunc(o.CapDrop, func(dropped string) bool {
		return slices.Contains(needed, strings.TrimPrefix(strings.ToUpper(dropped), "CAP_"))
	})
}

// container returns the configuration of a container.
func (e *Engine) container(image string, o engine.SandboxOptions, handover *handover, copies, quota bool) client.ContainerCreateOptions {
	limits := e.limits(o)
	pids := int64(limits.MaxProcesses)
	host := &container.HostConfig{
		AutoRemove: true, NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"},
		CapDrop: e.dropped(o.Mounts), SecurityOpt: []string{"no-new-privileges"},
		Resources: container.Resources{
			Memory: limits.MemoryBytes, MemorySwap: limits.MemoryBytes, // none beyond the memory
			CPUPeriod: cpuPeriod, CPUQuota: quotaOf(limits), PidsLimit: &pids,
		},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
	}
	for _, option := range e.options.SecurityOpt {
		if !slices.Contains(host.SecurityOpt, option) {
			host.SecurityOpt = append(host.SecurityOpt, option)
		}
	}
	if quota {
		host.StorageOpt = map[string]string{"size": fmt.Sprint(limits.DiskBytes)}
	}
	if !copies {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: e.program.path, Target: guest.MountedProgram, ReadOnly: true})
	}
	for i, m := range o.Mounts {
		// The mount at this path is already read-only if it should be. A read-only flag for the
		// daemon would drop nosuid and nodev.
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: handover.path(i), Target: m.Path})
	}
	return client.ContainerCreateOptions{
		HostConfig: host,
		Config: &container.Config{
			Image: image, Hostname: o.ID, User: e.user(o), StopSignal: "SIGKILL", // process 1 ignores all others
			Entrypoint: []string{programIn(copies), guest.ProgramArgument}, Cmd: []string{},
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels:      map[string]string{labelInstance: e.instance, labelSandbox: o.ID, labelServer: self()},
		},
	}
}

// programIn returns the path of the program in a container.
func programIn(copies bool) string {
	if copies {
		return guest.Program
	}
	return guest.MountedProgram
}

func (e *Engine) copyProgram(ctx context.Context, id string) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(e.program.archive(w)) }()
	_, err := e.client.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: "/", Content: r, AllowOverwriteDirWithFile: true})
	_ = r.Close() // ends the archive if it was not read to its end
	if err != nil {
		return fmt.Errorf("copy the program into a container: %w", err)
	}
	return nil
}

// start attaches to the container, starts it and waits for its envd.
func (s *sandbox) start(ctx context.Context, o engine.SandboxOptions, removed []string) error {
	e := s.engine
	attached, err := e.client.ContainerAttach(ctx, s.name, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		// Podman prepares the container during attach, and only start returns the error.
		if _, failed := e.client.ContainerStart(ctx, s.name, client.ContainerStartOptions{}); failed != nil {
			err = failed
		}
		return fmt.Errorf("attach to the container: %w", err)
	}
	s.attach = newAttachment(attached.HijackedResponse)
	waiting, forget := context.WithCancel(context.Background())
	s.forget = forget
	s.exit = e.awaitExit(waiting, s.name)
	if _, err := e.client.ContainerStart(ctx, s.name, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start the container: %w", err)
	}
	if user := e.user(o); o.Image != nil && user != "0" && e.options.User == "" && len(removed) > 0 {
		if err := s.removeAsRoot(ctx, removed); err != nil {
			return fmt.Errorf("remove what the saved sandbox had removed: %w", err)
		}
		removed = nil
	}
	egress := o.Egress
	if e.options.NetworkDisabled {
		egress = nil
	}
	config, err := e.config(o)
	if err != nil {
		return err
	}
	s.tunnel, err = tunnel.Open(ctx, s.attach, tunnel.Options{Hello: tunnel.Hello{ID: o.ID, Config: config, Removed: removed}, Egress: egress, Tell: o.Tell})
	if err != nil {
		if said := s.attach.stderrText(); said != "" {
			return fmt.Errorf("%w; it said: %s", err, said)
		}
		return err
	}
	s.standstill = link.NewStandstill(s.done)
	s.standstill.In, s.standstill.Out, s.standstill.Stop = s.tunnel.Entrance(), s.tunnel.Access(), s.stop
	return nil
}

// starved checks whether a limit prevented the start of a container. If so, it returns an error that
// names the limit. Otherwise it returns err unchanged.
func (s *sandbox) starved(err error, limits engine.Limits) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "failed to create new OS thread"), strings.Contains(text, "resource temporarily unavailable"):
		return fmt.Errorf("%w: it needs more than %d processes: its first process cannot make its threads", engine.ErrLimits, limits.MaxProcesses)
	case strings.Contains(text, "OOM-killed"), s.killed():
		return fmt.Errorf("%w: it needs more than %d bytes of memory", engine.ErrLimits, limits.MemoryBytes)
	}
	return err
}

// killed reports whether the first process was killed although the sandbox was not closed.
func (s *sandbox) killed() bool {
	if s.tunnel != nil || s.exit == nil {
		return false
	}
	select {
	case status := <-s.exit:
		return status == killedStatus
	case <-time.After(exitPatience):
		return false
	}
}

// removeAsRoot removes files that the user of the container is not allowed to remove.
func (s *sandbox) removeAsRoot(ctx context.Context, names []string) error {
	c := s.engine.client
	made, err := c.ExecCreate(ctx, s.name, client.ExecCreateOptions{
		User: "0", AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: []string{s.program, guest.RemoveArgument},
	})
	if err != nil {
		return err
	}
	attached, err := c.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	a := newAttachment(attached.HijackedResponse)
	defer func() { _ = a.Close() }()
	defer context.AfterFunc(ctx, func() { _ = a.Close() })()
	_, err = io.WriteString(a, strings.Join(names, "\x00"))
	if err = errors.Join(err, attached.CloseWrite()); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, a); err != nil { // until it has ended
		return err
	}
	ended, err := c.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err == nil && ended.ExitCode != 0 {
		err = fmt.Errorf("exit status %d: %s", ended.ExitCode, a.stderrText())
	}
	return err
}

// awaitExit returns a channel that receives the exit status of the container. If the daemon does not
// report the status, the channel receives nothing.
func (e *Engine) awaitExit(ctx context.Context, name string) <-chan int64 {
	status := make(chan int64, 1)
	wait := e.client.ContainerWait(ctx, name, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	go func() {
		// One of the two always comes, even when ctx ends. The client's own goroutine would block
		// for ever if nobody received from it.
		select {
		case end := <-wait.Result:
			status <- end.StatusCode
		case err := <-wait.Error:
			e.options.Logger.DebugContext(ctx, "how a container ends cannot be found out", "container", name, "error", err)
		}
	}()
	return status
}

// exitPatience limits the wait for the daemon's report of the end of a container.
const exitPatience = 2 * time.Second

// killedStatus is the exit status of a process that was killed.
const killedStatus = 128 + 9

// causeOfDeath returns the reason why a container ended by itself. If Close has ended the container in
// the meantime, causeOfDeath returns [engine.ErrClosed].
func (s *sandbox) causeOfDeath() error {
	select {
	case status := <-s.exit:
		switch {
		case status == killedStatus:
			return fmt.Errorf("%w, or the container was killed from outside", engine.ErrOutOfMemory)
		case s.attach.stderrText() != "":
			return fmt.Errorf("envd ended with status %d: %s", status, s.attach.stderrText())
		}
		if err := s.tunnel.Err(); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("envd ended with status %d: %w", status, err)
		}
		return fmt.Errorf("envd ended with status %d", status)
	case <-s.done: // by Close
		return engine.ErrClosed
	case <-time.After(exitPatience):
	}
	return fmt.Errorf("the connection to its container at %s broke: %w", s.engine.host, cmp.Or(s.tunnel.Err(), io.EOF))
}

// fail records err as the reason for the sandbox's end, unless a reason is already recorded.
func (s *sandbox) fail(err error) {
	if s.reason.CompareAndSwap(nil, &err) {
		close(s.done)
	}
}

// Done returns a channel that is closed when the reason for the sandbox's end is known.
func (s *sandbox) Done() <-chan struct{} { return s.done }

// Err returns why the sandbox ended, and nil before its end.
func (s *sandbox) Err() error {
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// Close ends the sandbox and removes its container.
func (s *sandbox) Close() error {
	s.fail(engine.ErrClosed)
	return s.close()
}

func (s *sandbox) end() error {
	err := s.discard()
	s.engine.mu.Lock()
	delete(s.engine.sandboxes, s)
	s.engine.mu.Unlock()
	return err
}

// discard ends and removes the container, at any stage of its start.
func (s *sandbox) discard() error {
	if s.tunnel != nil {
		s.tunnel.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := s.engine.remove(ctx, s.name)
	if err != nil {
		s.engine.leave(s.name)
	}
	if s.attach != nil {
		_ = s.attach.Close() // only now: closing it ends the container, and the daemon would remove that at the same time
	}
	if s.forget != nil {
		s.forget()
	}
	return errors.Join(err, s.handover.Close())
}

// Dial connects to a port in the sandbox.
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := s.tunnel.Dial(ctx, port)
	if errors.Is(err, engine.ErrGone) {
		s.awaitReason(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("docker: dial port %d of sandbox %s: %w", port, s.id, err)
	}
	return conn, nil
}

// SetEgress changes the egress of a sandbox that was started with an egress.
func (s *sandbox) SetEgress(e engine.Egress) {
	if !s.engine.options.NetworkDisabled {
		s.tunnel.Access().SetEgress(e)
	}
}

// Freeze stops every process of the sandbox until Thaw, and cuts its connections.
func (s *sandbox) Freeze(ctx context.Context) error { return s.frozen(s.standstill.Freeze(ctx)) }

// Hold stops every process of the sandbox until Thaw, and keeps its connections.
func (s *sandbox) Hold(ctx context.Context) error { return s.frozen(s.standstill.Hold(ctx)) }

// frozen wraps the error of a freeze. It returns nil if err is nil.
func (s *sandbox) frozen(err error) error {
	if err != nil {
		return fmt.Errorf("docker: freeze sandbox %s: %w", s.id, err)
	}
	return nil
}

// Thaw lets the processes of a frozen sandbox run again.
func (s *sandbox) Thaw(ctx context.Context) error {
	if err := s.standstill.Thaw(ctx); err != nil {
		return fmt.Errorf("docker: thaw sandbox %s: %w", s.id, err)
	}
	return nil
}

// stop pauses the container, and returns the function that lets it run again.
func (s *sandbox) stop(ctx context.Context) (resume func(context.Context) error, err error) {
	if err := s.engine.pause(ctx, s.name); err != nil {
		// The daemon may have paused it even if ctx ended.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		_ = s.unpause(back)
		return nil, s.gone(ctx, err)
	}
	return s.unpause, nil
}

func (s *sandbox) unpause(ctx context.Context) error {
	_, err := s.engine.client.ContainerUnpause(ctx, s.name, client.ContainerUnpauseOptions{})
	return s.gone(ctx, err)
}

// pauses is the maximum number of requests that pause sends for one container.
const pauses = 5

// pause makes the daemon pause a container. On a busy machine, processes may not stop fast
// enough for runc. In this case runc lets all processes run again, and reports that it is "unable to
// freeze" them. pause then repeats its request.
func (e *Engine) pause(ctx context.Context, name string) (err error) {
	for range pauses {
		_, err = e.client.ContainerPause(ctx, name, client.ContainerPauseOptions{})
		if err == nil || !strings.Contains(err.Error(), "unable to freeze") {
			break
		}
	}
	return err
}

// awaitReason waits until the reason for the sandbox's end is known, or ctx ends. It is called when
// the tunnel has broken or is about to break.
func (s *sandbox) awaitReason(ctx context.Context) {
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}

// gone returns err, an error of the daemon. If err means that the container no longer exists, the
// result also matches [engine.ErrGone].
func (s *sandbox) gone(ctx context.Context, err error) error {
	if errdefs.IsNotFound(err) {
		s.awaitReason(ctx)
		return fmt.Errorf("%w: %w", engine.ErrGone, err)
	}
	return err
}

// Memory returns the bytes of memory in use that cannot be reclaimed.
func (s *sandbox) Memory() int64 {
	usage, _ := s.Usage()
	return int64(usage.Memory)
}

// statsTimeout bounds the request for a container's statistics.
const statsTimeout = 5 * time.Second

// Usage returns the current usage. The usage of the disk is unknown.
func (s *sandbox) Usage() (engine.Usage, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	stats, err := s.engine.client.ContainerStats(ctx, s.name, client.ContainerStatsOptions{})
	if err != nil {
		return engine.Usage{}, false
	}
	defer stats.Body.Close()
	var r container.StatsResponse
	if err := json.NewDecoder(stats.Body).Decode(&r); err != nil || r.MemoryStats.Usage == 0 {
		return engine.Usage{}, false
	}
	cache := reclaimable(r.MemoryStats.Stats)
	return engine.Usage{
		CPU:    time.Duration(r.CPUStats.CPUUsage.TotalUsage),
		Memory: r.MemoryStats.Usage - min(cache, r.MemoryStats.Usage),
		Cache:  cache,
	}, true
}

// reclaimable returns the number of bytes of page cache in the statistics. It supports both versions
// of control groups.
func reclaimable(stats map[string]uint64) uint64 {
	if total, known := stats["total_cache"]; known {
		return total - min(total, stats["total_shmem"])
	}
	return stats["file"] - min(stats["file"], stats["shmem"])
}
