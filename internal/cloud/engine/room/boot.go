//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// errLimit means that the control groups of a sandbox could not be made. This error does not count as
// a refusal of isolation.
var errLimit = errors.New("limit")

var errBootTimeout = fmt.Errorf("envd was not ready within %v", bootTimeout)

func (r *Room) newSandbox(ctx context.Context, o engine.SandboxOptions) (*Sandbox, error) {
	limits := o.Limits.WithDefaults()
	if err := errors.Join(limits.Check(), checkID(o.ID)); err != nil {
		return nil, err
	}
	if err := r.report.Promises.CheckOptions(o); err != nil {
		return nil, err
	}
	if o.Image != nil && len(o.Layers) == 0 {
		return nil, fmt.Errorf("the image %.300s has no layers", o.Image.Reference)
	}
	config, err := o.EncodeConfig()
	if err != nil {
		return nil, err
	}
	if s, started := r.warmFor(ctx, o, limits); s != nil {
		err := s.become(ctx, o, config)
		started()
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		r.options.Logger.WarnContext(ctx, "the warm sandbox could not be used", "error", err)
	}
	// Starting all at once would take as long in total, and too long for each.
	select {
	case r.roster.starting <- struct{}{}:
		defer func() { <-r.roster.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if o.Memory != "" && !r.runner.restores() {
		return nil, fmt.Errorf("%w: it was saved by gVisor", engine.ErrOtherMachine)
	}
	s, err := r.prepareWith(ctx, limits, forUse, o)
	if err != nil {
		return nil, err
	}
	return s, s.begin(ctx, o, config, wire.RoleEnvd)
}

// warmFor returns the warm sandbox if it can become the sandbox that o describes.
func (r *Room) warmFor(ctx context.Context, o engine.SandboxOptions, limits engine.Limits) (s *Sandbox, started func()) {
	replaced, shown := o.Files != "" || len(o.Layers) > 0, len(o.Authority) > 0
	if (replaced || shown) && !r.ranged() || len(o.Volumes)+len(o.Mounts) > 0 && !replaced || replaced && shown {
		return nil, nil
	}
	if s, started = r.takeWarm(ctx, limits); s != nil && s.files.outdated(r.trees.private.result.Load()) {
		_ = s.Close() // the keeper removes the rest
		started()
		return nil, nil
	}
	return s, started
}

// prepare makes a sandbox without an owner. The sandbox is isolated and limited. Its envd has
// started, and waits for its configuration.
func (r *Room) prepare(ctx context.Context, limits engine.Limits, as purpose) (*Sandbox, error) {
	return r.prepareWith(ctx, limits, as, engine.SandboxOptions{})
}

// prepareWith is like prepare, but the sandbox starts with the files that o describes. begin gives
// the sandbox its owner later.
func (r *Room) prepareWith(ctx context.Context, limits engine.Limits, as purpose, o engine.SandboxOptions) (*Sandbox, error) {
	s := &Sandbox{
		options: o,
		room:    r,
		share:   allotment{limits: limits},
		purpose: as,
		process: newFirstProcess(),
		pause:   newPause(),
	}
	if err := r.trees.private.wait(ctx); err != nil {
		return nil, err
	}
	s.life = newLifetime(s.end)
	s.traffic = newTraffic(&r.roster.flows, s.warnOfFlows)
	s.pause.standstill = link.NewStandstill(s.life.done)
	s.pause.standstill.In, s.pause.standstill.Stop = &s.traffic.entrance, s.stop
	if err := r.roster.add(s); err != nil {
		return nil, err
	}
	if err := s.boot(ctx); err != nil {
		return nil, s.abandon(err)
	}
	return s, nil
}

// begin turns a prepared sandbox into the sandbox that o describes, and returns when its envd is
// ready. config is the text of o.Config. If begin fails, it closes the sandbox.
func (s *Sandbox) begin(ctx context.Context, o engine.SandboxOptions, config []byte, as wire.Role) error {
	s.options = o
	err := s.configure(ctx, config, as)
	if err == nil {
		err = s.awaitMounter(ctx)
	}
	if err == nil && as == wire.RoleEnvd {
		err = s.open(ctx)
	}
	if err != nil {
		return s.abandon(err)
	}
	return nil
}

// abandon closes a sandbox that could not be started.
func (s *Sandbox) abandon(err error) error {
	s.life.fail(err)
	return errors.Join(err, s.life.close())
}

// open begins to serve envd. If the sandbox is already being ended, which can begin at any time,
// the error is [engine.ErrGone].
func (s *Sandbox) open(ctx context.Context) error {
	return s.life.open(ctx, func(life context.Context) {
		unused := time.AfterFunc(s.room.zygote.unusedTime, s.kernels.endAhead)
		context.AfterFunc(life, func() { unused.Stop() })
		s.traffic.start(life, s.options.Egress)
		s.pause.standstill.Out = s.traffic.access
		s.traffic.flows.Go(s.serve)
	})
}

func checkID(id string) error {
	if id == "" || len(id) > 63 {
		return fmt.Errorf("id of %d bytes: 1 to 63 are allowed", len(id))
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("id %q: letters, digits and hyphens are allowed", id)
		}
	}
	return nil
}

// boot makes the room start the first process of the sandbox. It puts the process into its control
// groups, and exchanges the messages of the first stage with the process.
func (s *Sandbox) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bootTimeout(), errBootTimeout)
	defer cancel()
	envd, fd3, err := wire.Pair(wire.MaxEnvdMessage)
	if err != nil {
		s.process.gone()
		return err
	}
	s.envd = envd
	var mounter *os.File
	if s.purpose == forPool && s.room.ranged() || s.entersLate() {
		if s.mounter, mounter, err = wire.Pair(wire.MaxEnvdMessage); err != nil {
			fd3.Close()
			s.process.gone()
			return err
		}
		defer mounter.Close()
	}
	request := wire.Message{Kind: wire.KindSpawn, ID: s.number, Slot: s.slot}
	if err := s.room.runner.place(s, &request); err != nil {
		fd3.Close()
		s.process.gone()
		return err
	}
	var files wire.Files
	defer files.Close()
	files.Add(wire.FileControl, fd3)
	if s.share.group, err = s.makeGroup(); err == nil && s.purpose == forPool {
		err = s.room.warm.stepBack(s.share.group)
	}
	if err == nil {
		var groups []*os.File
		groups, err = s.share.group.OpenPlacement()
		files.AddList(wire.FileGroup, groups)
	}
	if err != nil {
		s.process.gone()
		return fmt.Errorf("%w: %w", errLimit, err)
	}
	err = s.room.process.control.SendFiles(request, &files)
	files.Close() // now only the child has it open, so that its end is noticed
	if err != nil {
		s.process.gone()
		return fmt.Errorf("ask the room: %w", err)
	}
	// This wait ignores ctx: before the answer arrives there is nothing to kill.
	answer := <-s.process.spawned
	if answer.err != nil {
		return fmt.Errorf("start in new namespaces: %w", answer.err)
	}
	s.process.pidfd = answer.pidfd
	pid, err := s.process.pid()
	if err != nil {
		return err
	}
	// When a process joins a group the kernel may wait for all processors, which takes longer
	// than the rest of the boot. Therefore the first stage begins without its limits: it runs
	// none of the sandbox's code, and it does not finish before they apply.
	limited := make(chan error, 1)
	go func() { limited <- s.share.group.Add(pid) }()
	err = s.sendInit(ctx, pid, mounter)
	if err == nil {
		err = s.awaitBuilt(ctx)
	}
	refused := <-limited
	if err != nil {
		return err // it has the reason if there is no process to limit
	}
	if refused != nil {
		return fmt.Errorf("%w: %w", errLimit, refused)
	}
	if err := s.envd.Send(wire.Message{Kind: wire.KindGo}); err != nil {
		return s.explain(ctx, "restrict", err)
	}
	if err := s.envd.AwaitHello(ctx); err != nil {
		return s.explain(ctx, "restrict", err)
	}
	if s.entersLate() {
		return s.enterRoot(ctx)
	}
	return nil
}

// enterRoot makes the mounter enter the root of the image. The mounter is a process that runs beside
// the second stage of the sandbox.
func (s *Sandbox) enterRoot(ctx context.Context) error {
	if err := s.startMounter(ctx, wire.RoleEnterer, s.enterSpec(), nil); err != nil {
		return s.explain(ctx, "hand over the root", err)
	}
	if err := s.mounter.AwaitReady(ctx, bootTimeout); err != nil {
		return s.explain(ctx, "enter the root of the image", err)
	}
	return nil
}

// makeGroup makes the control groups of the sandbox, with the sandbox's limits.
func (s *Sandbox) makeGroup() (*cgroup.Group, error) {
	return s.room.keeper.groups.Create(strconv.FormatUint(s.number, 10), s.room.runner.groupLimits(s.share.limits))
}

// bootTimeout returns the time limit for each of the two stages of a sandbox's start.
func (s *Sandbox) bootTimeout() time.Duration {
	if s.options.Files != "" || s.options.Memory != "" {
		return bootTimeout + restoreTimeout
	}
	return bootTimeout
}

// builtFiles limits the files of the first stage: those of the sandbox, two of /proc/meminfo, and
// the sockets of the egress path.
const builtFiles = 3 + exitSockets

// awaitBuilt waits until the first stage has built the sandbox, and takes the files that it sends.
func (s *Sandbox) awaitBuilt(ctx context.Context) error {
	defer s.envd.Deadline(ctx, s.bootTimeout())()
	built, files, err := s.envd.Expect(wire.KindReady, builtFiles)
	if err != nil {
		return s.explain(ctx, "build", err)
	}
	defer files.Close()
	if err := s.room.runner.takeBuilt(s, files); err != nil {
		return err
	}
	if s.traffic.exit, err = newExit(files.TakeList(wire.FileEgress)); err != nil {
		return fmt.Errorf("take the egress path: %w", err)
	}
	if err := files.End(); err != nil {
		return err
	}
	s.files.hidden, s.traffic.noExit = built.Hidden, built.Error
	s.noteBuilt(ctx, built)
	return nil
}

// keepMeminfo makes the room keep the sandbox's /proc/meminfo up to date. For this, it takes files
// from made and sends them to the room.
func (s *Sandbox) keepMeminfo(made *wire.Files) error {
	var files wire.Files
	defer files.Close()
	for _, name := range []wire.FileName{wire.FileMeminfo, wire.FileProc} {
		file, err := made.Take(name)
		if err != nil {
			return err
		}
		files.Add(name, file)
	}
	use, err := s.share.group.OpenMemoryUse()
	if err != nil {
		return err
	}
	if use != nil {
		files.Add(wire.FileMemoryUse, use)
	}
	spec := wire.Encode(wire.MeminfoSpec{Total: s.share.limits.MemoryBytes})
	return s.room.process.control.SendFiles(wire.Message{Kind: wire.KindMeminfo, ID: s.number, Spec: spec}, &files)
}

// noteBuilt records the properties of a file system that was built for the sandbox.
func (s *Sandbox) noteBuilt(ctx context.Context, built wire.Message) {
	if (s.options.Files != "" || len(s.options.Layers) > 0) && len(built.Notes) > 0 {
		s.room.options.Logger.WarnContext(ctx, "a sandbox was restored", "layers", s.options.Layers, "files", s.options.Files, "notes", built.Notes)
	}
	s.files.note(built)
}

// explain finds out why a process died without an error message.
func (s *Sandbox) explain(ctx context.Context, doing string, err error) error {
	if errors.Is(err, wire.ErrPeerEnded) {
		select {
		case <-s.process.exited:
			if err = s.Err(); !errors.Is(err, ErrRoomEnded) {
				err = s.causeOfDeath()
			}
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%s: %w", doing, link.CauseOf(ctx, err))
}

func (s *Sandbox) causeOfDeath() error {
	if s.room.runner.killed(s.process.status) && s.OOMKills() > 0 {
		return engine.ErrOutOfMemory
	}
	if s.process.status.Signaled() {
		return fmt.Errorf("envd was ended by signal %d (%v)", int(s.process.status.Signal()), s.process.status.Signal())
	}
	return fmt.Errorf("envd exited with status %d", s.process.status.ExitStatus())
}

func (s *Sandbox) sendInit(ctx context.Context, pid int, mounter *os.File) error {
	var files wire.Files
	defer files.Close()
	spec, err := s.buildSpec(pid, &files)
	if err != nil {
		return err
	}
	if spec.Limits, err = s.rlimits(); err != nil {
		return err
	}
	if mounter != nil {
		files.Lend(wire.FileMounter, mounter)
		spec.Mounter, spec.Late = true, s.entersLate()
	}
	if err := s.envd.Handshake(ctx, wire.RoleInit, spec, &files); err != nil {
		return s.explain(ctx, "hand over the template", err)
	}
	return nil
}
