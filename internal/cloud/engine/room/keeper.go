//go:build linux

package room

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
)

// KeeperOptions configure [StartKeeper]. Each field means the same as in [Options].
type KeeperOptions struct {
	Dir       string
	Binary    string
	Processes int64
	Logger    *slog.Logger
}

// Keeper owns the instance directory and the control groups. Several rooms can use these, one room
// after the other. The Keeper has a process that waits for the end of the server, for any reason,
// and then removes the directory and the groups. If this process dies, another process replaces it.
// A Keeper is safe for concurrent use. The caller must first close the rooms, and then the Keeper.
type Keeper struct {
	options KeeperOptions
	binary  *os.File // the program that the keeper and the processes of rooms execute
	linked  bool     // binary needs libraries to start
	groups  *cgroup.Groups
	spec    instance.Spec
	lock    *os.File
	close   func() error
	watched chan struct{} // closed when no process is being watched any longer

	mu      sync.Mutex
	closed  bool
	process *spawn.Process
	control *wire.Conn
}

// StartKeeper starts a keeper, and removes the remains of earlier servers from the parent directory
// of o.Dir. ctx bounds only the start. If StartKeeper fails, no process remains.
func StartKeeper(ctx context.Context, o KeeperOptions) (*Keeper, error) {
	k, err := startKeeper(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("room: start: %w", cmp.Or(shortage.Of(err), err))
	}
	return k, nil
}

func startKeeper(ctx context.Context, o KeeperOptions) (*Keeper, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkDir(o.Dir); err != nil {
		return nil, fmt.Errorf("instance directory %q: %w", o.Dir, err)
	}
	processes, err := planProcesses(o.Processes)
	if err != nil {
		return nil, err
	}
	o.Processes = processes
	k := &Keeper{options: o, watched: make(chan struct{})}
	if k.binary, err = openBinary(o.Binary, o.Dir); err != nil {
		return nil, fmt.Errorf("open envd: %w", err)
	}
	k.linked = hostprogram.IsLinked(k.binary)
	if err := instance.ReapStale(ctx, o.Dir); err != nil {
		o.Logger.WarnContext(ctx, "an earlier instance could not be cleaned up", "error", err)
	}
	k.groups = cgroup.Create(instance.Group(o.Dir), o.Processes, counter.CloudPart)
	k.spec = instance.Spec{Dir: o.Dir, Roots: planRoots(o.Dir), Groups: k.groups.Directories()}
	if k.lock, err = instance.Lock(k.spec); err == nil {
		err = k.startProcess(ctx)
	}
	if err != nil {
		if k.lock != nil {
			k.lock.Close()
		}
		k.binary.Close()
		return nil, errors.Join(fmt.Errorf("start the keeper: %w", notOurs(err)), cgroup.Remove(context.WithoutCancel(ctx), k.spec.Groups))
	}
	k.close = sync.OnceValue(k.end)
	go k.watch(context.WithoutCancel(ctx))
	return k, nil
}

// checkDir returns an error for a directory that the keeper must not remove.
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

// startProcess starts the keeper's process. The caller holds mu, or has the only reference to k.
func (k *Keeper) startProcess(ctx context.Context) error {
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return err
	}
	process, err := spawn.Start(k.binary, fd3, nil, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{})
	fd3.Close() // now only the child has it open, so that its end is noticed
	if err != nil {
		conn.Close()
		return err
	}
	err = conn.Handshake(ctx, wire.RoleKeeper, k.spec, wire.Lent(wire.FileLock, k.lock))
	if err == nil {
		err = conn.AwaitReady(ctx, wire.HandshakeTimeout)
	}
	if err != nil {
		process.Kill() // this process is not a keeper
		conn.Close()
		return err
	}
	k.process, k.control = process, conn
	return nil
}

// watch starts another keeper's process whenever the present one dies, until Close is called. If
// too many processes die in a short time, watch stops, and Close then cleans up by itself.
func (k *Keeper) watch(ctx context.Context) {
	defer close(k.watched)
	var deaths engine.Deaths
	for {
		process := k.running()
		<-process.Done
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return
		}
		k.control.Close()
		how, err := process.Cmd.ProcessState, errKeepersDie
		if !deaths.TooMany(time.Now()) {
			err = k.startProcess(ctx)
		}
		k.mu.Unlock()
		if err != nil {
			k.options.Logger.ErrorContext(ctx, "the keeper died, and there is no other: if the server is killed, the next one has to clean up", "pid", process.Cmd.Process.Pid, "how", how, "error", err)
			return
		}
		k.options.Logger.WarnContext(ctx, "the keeper died, and another one took its place", "pid", process.Cmd.Process.Pid, "how", how)
	}
}

var errKeepersDie = fmt.Errorf("%d keepers died within %v", engine.MaxDeaths, engine.DeathsWithin)

// running returns the keeper's process that was started last.
func (k *Keeper) running() *spawn.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process
}

// Close makes the keeper's process remove the control groups and the instance directory. Then it
// removes any remains itself. If it returns an error, the next server with an instance directory in
// the same parent directory tries again.
func (k *Keeper) Close() error { return k.close() }

func (k *Keeper) end() error {
	k.mu.Lock()
	k.closed = true
	k.lock.Close()
	k.control.Close()
	k.mu.Unlock()
	<-k.watched
	k.binary.Close()
	if _, err := os.Stat(k.spec.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil // it is removed last
	}
	if err := k.spec.Clean(context.Background()); err != nil {
		return fmt.Errorf("left behind, for the next server to remove: %w", err)
	}
	return nil
}
