//go:build linux

package room

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
)

// Start makes the room, after it has tried once that the machine supports what the
// isolation needs. ctx bounds only the start. An error that Is [engine.ErrNoIsolation]
// says what was tried. If Start fails nothing is left running, but o.Dir may be
// left behind.
func Start(ctx context.Context, o Options) (*Room, error) {
	if len(os.Args) > 0 && os.Args[0] == hello.Argv0 {
		return nil, errors.New("room: start: this process is an envd itself: its binary does not import the hook that makes it one")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Warm != nil {
		o.WarmCount = cmp.Or(o.WarmCount, 1)
		if err := o.Warm.WithDefaults().Check(); err != nil {
			return nil, fmt.Errorf("room: start: %w", err)
		}
	}
	r := &Room{
		options:    o,
		slots:      make(map[uint32]bool),
		sandboxes:  make(map[uint64]*Sandbox),
		unusedTime: unusedTime,
		boots:      make(chan struct{}, 4*runtime.NumCPU()),
	}
	r.zygote.warmed, r.zygote.wanted = make(chan struct{}, 1), make(chan struct{}, 1)
	r.close = sync.OnceValue(r.end)
	if err := errors.Join(r.flows.fill(), r.planProcesses()); err != nil {
		return nil, fmt.Errorf("room: start: %w", err)
	}
	if err := r.startBest(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if o.Warm != nil {
		r.keepWarm(ctx, o.Warm.WithDefaults(), o.WarmCount)
	}
	r.keepZygote(ctx)
	return r, nil
}

// startBest starts the keeper and then the room, at the best available isolation
// level.
func (r *Room) startBest(ctx context.Context) (err error) {
	o := r.options
	if err := checkDir(o.Dir); err != nil {
		return fmt.Errorf("room: start: instance directory %q: %w", o.Dir, err)
	}
	if r.trees, r.system, r.links, err = planTrees(o.Trees); err != nil {
		return fmt.Errorf("room: start: %w", err)
	}
	if r.binary, err = openBinary(o.Binary, o.Dir); err != nil {
		return fmt.Errorf("room: start: open envd: %w", err)
	}
	r.linked = hostprogram.IsLinked(r.binary)
	if o.Runsc != "" {
		if r.runsc, err = os.Open(o.Runsc); err != nil {
			return fmt.Errorf("room: start: open gVisor's program: %w", err)
		}
	}
	if err := r.startKeeper(ctx); err != nil {
		return fmt.Errorf("room: start: start the keeper: %w", cmp.Or(shortage.Of(err), err))
	}
	return r.startLevels(ctx)
}

// startLevels starts the room at the level that was asked for, or at the strongest one that
// the machine does not refuse.
func (r *Room) startLevels(ctx context.Context) error {
	o := r.options
	levels := []engine.Isolation{o.Isolation}
	if o.Isolation == engine.Auto {
		levels = []engine.Isolation{engine.Full, engine.Restricted}
	}
	var refused engine.NoIsolationError
	for _, level := range levels {
		err := r.startLevel(ctx, level)
		if err == nil {
			r.noteFall(refused.Attempts)
			return nil
		}
		_ = r.endRoom() // the reason why the level could not be started says more
		r.private.end()
		if lost := r.private.err; lost != nil && errors.Is(err, lost) {
			return fmt.Errorf("room: start: %w", cmp.Or(shortage.Of(err), err)) // the machine refused nothing
		}
		r.private = private{} // at another level sandboxes need none
		if ctx.Err() != nil {
			return fmt.Errorf("room: start: %w", context.Cause(ctx))
		}
		// Another level would need as much, and would hide the reason.
		if short := cmp.Or(shortage.Of(err), shortage.Because(err, err.Error()+r.said.String())); short != nil {
			return fmt.Errorf("room: start: %w", short)
		}
		if !isRefusal(err) {
			return fmt.Errorf("room: start: isolation %q: %w", level, err)
		}
		refused.Attempts = append(refused.Attempts, engine.Attempt{Isolation: level, Err: err})
	}
	refused.Remedy = remedyOf(refused.Attempts, lookAround())
	return &refused
}

// checkDir refuses directories that the keeper must not remove.
func checkDir(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return errors.New("not a clean absolute path")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !instance.OwnedByUs(info) || info.Mode().Perm()&0o077 != 0 {
		return errors.New("not a directory of this user's own with mode 0700")
	}
	return nil
}

func (r *Room) startLevel(ctx context.Context, level engine.Isolation) (err error) {
	if level != engine.Full && level != engine.Restricted && level != engine.None {
		return fmt.Errorf("there is no isolation %q", level)
	}
	r.level, r.egressPath = level, wire.EgressNone
	if level == engine.Full {
		r.egressPath = wire.EgressTry
	}
	if r.ids, err = planIDs(level); err != nil {
		return err
	}
	if level == engine.Restricted && r.options.Isolation == engine.Auto && !r.ids.apart {
		if err := landlock.KeepsSignals(); err != nil {
			return err
		}
	}
	if level == engine.Full && r.runsc != nil && !r.ids.entersDirectories() {
		return errNoDirectories
	}
	if r.ids.ranged {
		if err := r.findPrivate(ctx); err != nil {
			return err
		}
	}
	if err := r.makeRoots(); err != nil {
		return err
	}
	if err := r.startRoom(ctx); err != nil {
		return fmt.Errorf("start the room: %w", err)
	}
	if err := r.probe(ctx); err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	return nil
}

func (r *Room) startKeeper(ctx context.Context) error {
	if err := instance.ReapStale(ctx, r.options.Dir); err != nil {
		r.options.Logger.WarnContext(ctx, "an earlier instance could not be cleaned up", "error", err)
	}
	r.groups = cgroup.Create(instance.Group(r.options.Dir), r.options.Processes, counter.CloudPart)
	r.roots = planRoots(r.options.Dir)
	spec := instance.Spec{Dir: r.options.Dir, Roots: r.roots, Groups: r.groups.Directories()}
	var err error
	if r.lock, err = instance.Lock(spec); err != nil {
		return errors.Join(err, cgroup.Remove(ctx, spec.Groups))
	}
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return errors.Join(err, cgroup.Remove(ctx, spec.Groups))
	}
	r.keeperControl = conn
	keeper, err := spawn.Start(r.binary, fd3, nil, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{})
	fd3.Close() // now only the child has it open, so that its end is noticed
	if err != nil {
		return errors.Join(err, cgroup.Remove(ctx, spec.Groups))
	}
	err = conn.Handshake(ctx, wire.RoleKeeper, spec, r.lock)
	if err == nil {
		err = conn.AwaitReady(ctx, wire.HandshakeTimeout)
	}
	if err != nil {
		keeper.Kill() // whatever this process is, it is not a keeper
		return errors.Join(notOurs(err), cgroup.Remove(context.WithoutCancel(ctx), spec.Groups))
	}
	r.keeper = keeper
	return nil
}

func (r *Room) startRoom(ctx context.Context) error {
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return err
	}
	from, to, err := os.Pipe()
	if err != nil {
		conn.Close()
		fd3.Close()
		return err
	}
	var process *spawn.Process
	var guard *wire.Conn
	if r.level == engine.Full {
		at := spawn.Placement{Processes: r.roomProcesses()}
		if r.ids.apart {
			at.Owner = spawn.IDBase
		}
		if process, err = spawn.Start(r.binary, fd3, to, roomAttr(r.ids), at); err != nil {
			err = fmt.Errorf("clone into new namespaces: %w", err)
		}
	} else {
		process, guard, err = r.startGuard(ctx, fd3, to)
	}
	to.Close()
	fd3.Close()
	if err != nil {
		conn.Close()
		from.Close()
		return err
	}
	r.said.Reset()
	r.stderr.Go(func() { r.logStderr(from) })
	r.room, r.control, r.done, r.closed = process, conn, nil, false
	r.stop = sync.OnceValue(func() error { return stopRoom(process, conn, guard) })
	spec, err := r.roomSpec()
	if err != nil {
		return err
	}
	home, err := r.groups.OpenHome()
	if err != nil {
		return err
	}
	err = conn.Handshake(ctx, wire.RoleRoom, spec, home...)
	wire.CloseAll(home)
	if err != nil {
		return err
	}
	if err := conn.AwaitReady(ctx, 10*time.Second); err != nil {
		return err
	}
	r.done = make(chan struct{})
	go r.serve()
	return nil
}

// wire.RoomSpec returns what the room is told.
func (r *Room) roomSpec() (spec wire.RoomSpec, err error) {
	if r.level != engine.Full {
		return wire.RoomSpec{InPlace: true}, nil
	}
	if r.counted, err = counter.Read(); err != nil {
		return wire.RoomSpec{}, fmt.Errorf("read what the kernel counts by user: %w", err)
	}
	spec = wire.RoomSpec{Ranged: r.ids.ranged, Counters: r.counted.Part(counter.CloudPart), Processes: uint64(r.options.Processes)}
	spec.Limits, err = countedLimits(counter.CloudPart)
	if r.ids.ranged { // a maximum applies to each sandbox, because each has an owner of its own
		spec.Counters = r.counted.Part(counter.SandboxPart)
		spec.Limits, err = sandboxLimits()
	}
	return spec, err
}

// probe makes a sandbox and throws it away: what the machine can do is found out by
// doing it, never by reading a setting.
func (r *Room) probe(ctx context.Context) error {
	s, err := r.prepare(ctx, r.options.Limits.WithDefaults(), forProbe)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, engine.SandboxOptions{ID: "probe", Config: json.RawMessage("{}")}, wire.RoleProbe); err != nil {
		return err
	}
	r.fillReport(s.notes, s.hidden)
	r.hideTrees(s.hidden)
	r.judgeEgressPath(s)
	return s.Close()
}
