//go:build linux

package room

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/seccomp"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

const (
	// warmTimeout bounds the loading in the zygote. Loading takes long if the disk cache is cold or
	// the machine is busy.
	warmTimeout = 2 * time.Minute
	// orderPatience bounds the time that an order waits for earlier orders to be taken. A cold kernel
	// takes a second of processor time, and on a busy machine these orders also wait for processor
	// time. After an order has waited too long, the next orders wait only for shortPatience.
	orderPatience, shortPatience = 3 * time.Second, 50 * time.Millisecond
	// aheadPatience bounds the time that an order for a kernel may wait if the kernel is not needed
	// yet.
	aheadPatience = 5 * time.Millisecond
	// A zygote that dies is replaced after a pause. The pause grows with every death in a row, from
	// minZygotePause on.
	minZygotePause = 100 * time.Millisecond
	maxZygotePause = time.Minute
)

// zygoteDisk bounds the bytes that are written while the zygote loads. Nobody reads these bytes.
const zygoteDisk = 64 << 20

// errNoZygote means that there is no zygote now. Kernels then start cold.
var errNoZygote = errors.New("no process to fork kernels from")

// zygote is the server's side of the process from which kernels are forked.
type zygote struct {
	mu      sync.Mutex
	control *wire.Conn         // control connection; nil while no zygote is warm
	taken   time.Time          // time when the zygote last took an order, or became warm
	late    bool               // the zygote did not take the last order in time
	warmed  chan struct{}      // signalled when a zygote has become warm
	wanted  chan struct{}      // signalled when a kernel is requested
	cancel  context.CancelFunc // stops making zygotes; nil if no zygotes are made
	// unusedTime is the longest time that a kernel that was forked ahead waits for its first use.
	unusedTime time.Duration
	keeping    sync.WaitGroup
}

// isWarm reports whether there is a zygote now.
func (z *zygote) isWarm() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.control != nil
}

// keepZygote keeps a zygote ready until the room ends. If the machine refuses a zygote, or there is
// nothing to load, keepZygote stops trying. Kernels then start cold.
func (r *Room) keepZygote(ctx context.Context) {
	if !r.runner.forksKernels() || r.options.Zygote == nil || len(r.report.Hidden) > 0 { // in these cases kernels run another Python
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.zygote.cancel = cancel
	r.zygote.keeping.Go(func() {
		r.warm.awaitFirst(ctx) // the first sandbox is more urgent than the second kernel
		if err := r.trees.private.wait(ctx); err != nil {
			return // there is no sandbox either
		}
		if r.options.ZygoteLater {
			select {
			case <-r.zygote.wanted:
			case <-ctx.Done():
				return
			}
		}
		for pause := minZygotePause; ; pause = min(2*pause, maxZygotePause) {
			began := time.Now()
			err := r.liveZygote(ctx)
			if ctx.Err() != nil {
				return
			}
			r.options.Logger.DebugContext(ctx, "the zygote ended", "error", err)
			// ErrClosed comes from a fork whose order failed: the fork may notice the end first.
			if !errors.Is(err, wire.ErrPeerEnded) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
				return
			}
			if time.Since(began) > maxZygotePause {
				pause = minZygotePause
			}
			select {
			case <-time.After(pause):
			case <-r.process.done:
				return
			case <-ctx.Done():
				return
			}
		}
	})
}

// liveZygote starts one zygote and serves it until it ends.
func (r *Room) liveZygote(ctx context.Context) error {
	conn, fd3, err := wire.Pair(wire.MaxEnvdMessage)
	if err != nil {
		return err
	}
	defer conn.Close()
	number := r.roster.number()
	err = r.process.control.SendFiles(wire.Message{Kind: wire.KindSpawn, ID: number, Role: wire.RoleZygote}, wire.Lent(wire.FileControl, fd3))
	fd3.Close()
	if err != nil {
		return fmt.Errorf("ask the room: %w", err)
	}
	defer func() { _ = r.process.control.Send(wire.Message{Kind: wire.KindKill, ID: number}) }() // if the room is gone, so is the process
	spec := wire.ZygoteSpec{
		InitSpec: wire.InitSpec{
			Runner: wire.Runner{Ranged: r.ranged()}, Path: r.options.Path, Trees: r.trees.paths, Mounted: make([]bool, len(r.trees.paths)), Links: r.trees.links, Disk: zygoteDisk,
		},
		Config: *r.options.Zygote,
	}
	var files wire.Files
	defer files.Close()
	if err := r.addZygoteTrees(&spec, &files); err != nil {
		return err
	}
	err = conn.Handshake(ctx, wire.RoleZygote, spec, &files)
	files.Close()
	if err != nil {
		return err
	}
	if err := conn.AwaitReady(ctx, warmTimeout); err != nil {
		return err
	}
	r.options.Logger.DebugContext(ctx, "the zygote is warm")
	r.zygote.set(conn)
	tell(r.zygote.warmed)
	defer r.zygote.set(nil)
	defer context.AfterFunc(ctx, conn.Close)()
	_, _, err = conn.Expect("", 0) // it sends nothing more, so anything that arrives is its end
	return err
}

// addZygoteTrees adds mounts of the trees that only the server can reach, with the room's root in
// place of the host's, and the list of files to hide in them.
func (r *Room) addZygoteTrees(spec *wire.ZygoteSpec, files *wire.Files) error {
	if !r.ranged() {
		return nil
	}
	ids, err := openUserNamespace(r.process.first.Cmd.Process.Pid)
	if err != nil {
		return err
	}
	defer ids.Close()
	for i, path := range r.trees.paths {
		tree, _, err := mapTree(path, ids)
		if err != nil {
			return err
		}
		files.Add(wire.FileTree.Numbered(i), tree)
		spec.Mounted[i] = true
	}
	list, err := memoryFile(r.trees.private.result.Load().list)
	if err != nil {
		return err
	}
	files.Add(wire.FilePrivate, list)
	spec.Private = true
	return nil
}

// tell signals the reader of a channel with a buffer of one.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // an earlier signal has not been received yet
	}
}

func (z *zygote) set(conn *wire.Conn) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.control, z.taken, z.late = conn, time.Now(), false
}

// fork orders a kernel from the zygote. ahead means that the kernel is not needed yet. fork does
// not return an error if the kernel could not be made; the other end of the kernel's socket is then
// closed.
func (z *zygote) fork(ahead bool, order wire.KernelOrder, files *wire.Files) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.control == nil {
		return errNoZygote
	}
	patience := orderPatience
	if z.late {
		patience = shortPatience
	}
	if ahead {
		patience = aheadPatience
	}
	err := z.control.SendWithin(patience, wire.Message{Kind: wire.KindKernel, Spec: wire.Encode(order)}, files)
	if ahead && errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("order a kernel: %w", err) // its time was too short to judge the zygote
	}
	z.late = errors.Is(err, os.ErrDeadlineExceeded)
	if err == nil {
		z.taken = time.Now()
		return nil
	}
	// There are so many orders waiting that a cold kernel is ready sooner. But a
	// zygote that no longer takes any orders has to be replaced.
	if !z.late || time.Since(z.taken) > warmTimeout {
		z.control.Close()
		z.control = nil
	}
	return fmt.Errorf("order a kernel: %w", err)
}

func (z *zygote) end() {
	if z.cancel != nil {
		z.cancel()
		z.keeping.Wait()
	}
}

// giveKernel answers envd's request for a kernel with one end of the kernel's socket. The request
// has no parameters, and no file comes with it.
func (s *Sandbox) giveKernel(id uint64) error {
	kernel := s.takeForked()
	if kernel == nil {
		var err error
		if kernel, err = s.orderKernel(false); err != nil {
			return s.refuse(id, err)
		}
	}
	// If envd does not read the answer, only envd is harmed.
	_ = s.envd.SendFiles(wire.Message{Kind: wire.KindKernel, ID: id}, wire.Lent(wire.FileKernel, kernel))
	kernel.Close()
	return nil
}

func (s *Sandbox) orderKernel(ahead bool) (_ *os.File, err error) {
	if s.options.Image != nil {
		return nil, errNoZygote // this machine's Python is not in the image
	}
	tell(s.room.zygote.wanted)
	if !s.kernels.allowed.take(time.Now()) {
		return nil, fmt.Errorf("%w: %d kernels were forked in a short time", engine.ErrTooMany, maxForks)
	}
	limits, err := s.rlimits()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := wire.SocketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	var files wire.Files
	defer func() {
		files.Close()
		if err != nil {
			ours.Close()
		}
	}()
	files.Add(wire.FileKernel, theirs)
	files.Lend(wire.FilePidfd, s.process.pidfd)
	if s.share.group != nil {
		groups, err := s.share.group.Open()
		if err != nil {
			return nil, err
		}
		files.AddList(wire.FileGroup, groups)
	}
	ranged := s.room.ranged()
	cpus, processors := s.share.processors()
	order := wire.KernelOrder{
		Ranged: ranged, Owner: s.owner(), CPUs: cpus, Limits: limits, Processors: processors,
		Keep: capability.Kept(ranged), Filter: hex.EncodeToString(seccomp.Program()),
	}
	return ours, s.pause.order(func(joined *os.File) error {
		files.Lend(wire.FileJoined, joined)
		return s.room.zygote.fork(ahead, order, &files)
	})
}

// owner returns the user that made the sandbox's user namespace. The id is in the room's numbering.
func (s *Sandbox) owner() int {
	if s.room.ranged() {
		return spawn.FirstID(s.slot)
	}
	return 0
}
