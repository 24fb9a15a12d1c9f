//go:build linux

package room

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
)

// Start makes the room. It first tests once that the machine supports the isolation. ctx bounds
// only the start. An error that Is [engine.ErrNoIsolation] lists the isolation levels that were
// tried. If Start fails, no process is left, but o.Dir may still exist.
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
		options: o,
		roster:  newRoster(),
	}
	r.zygote.unusedTime = unusedTime
	r.zygote.warmed, r.zygote.wanted = make(chan struct{}, 1), make(chan struct{}, 1)
	r.close = sync.OnceValue(r.end)
	if err := r.roster.flows.fill(); err != nil {
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

// startBest starts the room at the best available isolation level. If there is no keeper, it first
// starts a keeper.
func (r *Room) startBest(ctx context.Context) (err error) {
	o := r.options
	if err := r.haveKeeper(ctx); err != nil {
		return err
	}
	if r.trees.paths, r.trees.system, r.trees.links, err = planTrees(o.Trees); err != nil {
		return fmt.Errorf("room: start: %w", err)
	}
	if o.Runsc != "" {
		if r.runsc, err = os.Open(o.Runsc); err != nil {
			return fmt.Errorf("room: start: open gVisor's program: %w", err)
		}
	}
	return r.startLevels(ctx)
}

// haveKeeper starts a keeper if [Options].Keeper is nil. The room uses the directory, groups and
// binary of its keeper.
func (r *Room) haveKeeper(ctx context.Context) (err error) {
	o := &r.options
	k := o.Keeper
	if k == nil {
		if k, err = StartKeeper(ctx, KeeperOptions{Dir: o.Dir, Binary: o.Binary, Processes: o.Processes, Logger: o.Logger}); err != nil {
			return err
		}
	}
	r.keeper = k
	o.Dir, o.Processes = k.options.Dir, k.options.Processes
	return nil
}

// startLevels starts the room at the requested level. If the level is Auto, it starts the room at
// the strongest level that the machine does not refuse.
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
		_ = r.process.end() // the reason why the level could not be started is more useful than this error
		r.trees.private.end()
		if lost := r.trees.private.lost(); lost != nil && errors.Is(err, lost) {
			return fmt.Errorf("room: start: %w", cmp.Or(shortage.Of(err), err)) // the machine refused nothing
		}
		r.trees.private = private{} // at another level sandboxes need none
		if ctx.Err() != nil {
			return fmt.Errorf("room: start: %w", context.Cause(ctx))
		}
		// Another level would need as much, and would hide the reason.
		if short := cmp.Or(shortage.Of(err), shortage.Because(err, err.Error()+r.process.stderr.said.String())); short != nil {
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

func (r *Room) startLevel(ctx context.Context, level engine.Isolation) (err error) {
	r.level, r.egressPath = level, wire.EgressNone
	if r.ids, err = planIDs(level); err != nil {
		return err
	}
	if r.runner, err = r.chooseRunner(); err != nil {
		return err
	}
	if err := r.runner.prepare(ctx); err != nil {
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

// chooseRunner returns the runner for the level that is being started.
func (r *Room) chooseRunner() (runner, error) {
	shared := direct{room: r}
	switch r.level {
	case engine.Restricted, engine.None:
		return inPlace{shared}, nil
	case engine.Full:
	default:
		return nil, fmt.Errorf("there is no isolation %q", r.level)
	}
	switch {
	case r.runsc == nil:
		return namespaces{shared}, nil
	case !r.ids.entersDirectories():
		return nil, errNoDirectories
	}
	return &gvisor{namespaces: namespaces{shared}}, nil
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
	process, guard, err := r.runner.startRoom(ctx, fd3, to)
	to.Close()
	fd3.Close()
	if err != nil {
		conn.Close()
		from.Close()
		return err
	}
	r.process.stderr.read(from, r.options.Logger)
	r.roster.open()
	r.process.started(process, conn, guard)
	spec, err := r.runner.roomSpec()
	if err != nil {
		return err
	}
	home, err := r.keeper.groups.OpenHome()
	if err != nil {
		return err
	}
	var files wire.Files
	files.AddList(wire.FileGroup, home)
	defer files.Close()
	if err := conn.Handshake(ctx, wire.RoleRoom, spec, &files); err != nil {
		return err
	}
	if err := conn.AwaitReady(ctx, 10*time.Second); err != nil {
		return err
	}
	r.process.done = make(chan struct{})
	go r.serve()
	return nil
}

// probe makes a sandbox and discards it. In this way the room finds out by trial which features the
// machine supports, and never by reading a setting.
func (r *Room) probe(ctx context.Context) error {
	s, err := r.prepare(ctx, r.options.Limits.WithDefaults(), forProbe)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, engine.SandboxOptions{ID: "probe"}, []byte("{}"), wire.RoleProbe); err != nil {
		return err
	}
	r.fillReport(s.files.notes, s.files.hidden)
	r.trees.leaveOut(s.files.hidden)
	r.judgeEgressPath(s)
	return s.Close()
}
