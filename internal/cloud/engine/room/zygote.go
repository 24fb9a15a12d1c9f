//go:build linux

package room

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// warmTimeout bounds what the zygote loads: a cold disk, a busy machine.
	warmTimeout = 2 * time.Minute
	// orderPatience bounds how long an order waits for those before it to be taken:
	// a cold kernel takes a second of a processor, which on a busy machine is what
	// these wait for, too. Once it was too long, others wait a moment only.
	orderPatience, shortPatience = 3 * time.Second, 50 * time.Millisecond
	// One that dies is replaced after a pause, which grows while that goes on.
	minZygotePause = 100 * time.Millisecond
	maxZygotePause = time.Minute
)

// errNoZygote: there is none now, and kernels start cold.
var errNoZygote = errors.New("no process to fork kernels from")

// zygote is the server's side of the one process that kernels are forked from.
type zygote struct {
	mu      sync.Mutex
	line    *control           // nil while none is warm
	taken   time.Time          // when it last took an order, or became warm
	late    bool               // it did not take the last one in time
	cancel  context.CancelFunc // nil without zygotes
	keeping sync.WaitGroup
}

// keepZygote has a zygote ready until the room ends. What the machine refuses,
// or what has nothing to load, is not tried again: kernels start cold then.
func (r *Room) keepZygote(ctx context.Context) {
	if r.rung != Full || r.options.Zygote == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.zygote.cancel = cancel
	r.zygote.keeping.Go(func() {
		r.spares.awaitFirst(ctx) // the first sandbox comes before the second kernel
		if err := r.private.wait(ctx); err != nil {
			return // nor is there a sandbox
		}
		for pause := minZygotePause; ; pause = min(2*pause, maxZygotePause) {
			began := time.Now()
			err := r.liveZygote(ctx)
			if ctx.Err() != nil {
				return
			}
			r.options.Logger.DebugContext(ctx, "the zygote ended", "error", err)
			if !errors.Is(err, errPeerEnded) && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if time.Since(began) > maxZygotePause {
				pause = minZygotePause
			}
			select {
			case <-time.After(pause):
			case <-r.done:
				return
			case <-ctx.Done():
				return
			}
		}
	})
}

// liveZygote runs one until its end.
func (r *Room) liveZygote(ctx context.Context) error {
	line, fd3, err := controlPair(maxAgentMessage)
	if err != nil {
		return err
	}
	defer line.close()
	r.mu.Lock()
	r.next++
	number := r.next
	r.mu.Unlock()
	err = r.line.send(message{Kind: kindSpawn, ID: number, Role: roleZygote}, fd3)
	fd3.Close()
	if err != nil {
		return fmt.Errorf("ask the room: %w", err)
	}
	defer func() { _ = r.line.send(message{Kind: kindKill, ID: number}) }() // when the room is gone, so is the process
	spec := zygoteSpec{
		initSpec: initSpec{
			Ranged: r.ranged(), Path: r.options.Path, Trees: r.trees, Mounted: make([]bool, len(r.trees)), Links: r.links, Disk: zygoteDisk,
		},
		Config: r.options.Zygote,
	}
	mounts, err := r.zygoteTrees(&spec)
	if err != nil {
		return err
	}
	err = line.greet(ctx, roleZygote, spec, mounts...)
	closeAll(mounts)
	if err != nil {
		return err
	}
	if err := line.await(ctx, warmTimeout); err != nil {
		return err
	}
	r.options.Logger.DebugContext(ctx, "the zygote is warm")
	r.zygote.set(line)
	defer r.zygote.set(nil)
	defer context.AfterFunc(ctx, line.close)()
	_, _, err = line.expect("", 0) // it has nothing more to say: what comes is its end
	return err
}

// zygoteTrees makes mounts of the trees where only the server may, with the room's
// root in place of the host's, and the list of what is not to be shown of them.
func (r *Room) zygoteTrees(spec *zygoteSpec) (mounts []*os.File, err error) {
	if !r.ranged() {
		return nil, nil
	}
	ids, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", r.room.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	defer ids.Close()
	for i, path := range r.trees {
		tree, _, err := mapTree(path, ids)
		if err != nil {
			closeAll(mounts)
			return nil, err
		}
		mounts, spec.Mounted[i] = append(mounts, tree), true
	}
	list, err := memoryFile(r.private.list)
	if err != nil {
		closeAll(mounts)
		return nil, err
	}
	spec.Private = true
	return append(mounts, list), nil
}

func (z *zygote) set(line *control) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.line, z.taken, z.late = line, time.Now(), false
}

// fork orders a kernel. That it was made is seen at the other end of its socket:
// where nothing was, that is closed.
func (z *zygote) fork(order kernelOrder, files ...*os.File) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.line == nil {
		return errNoZygote
	}
	patience := orderPatience
	if z.late {
		patience = shortPatience
	}
	err := z.line.sendWithin(patience, message{Kind: kindKernel, Spec: encode(order)}, files...)
	z.late = errors.Is(err, os.ErrDeadlineExceeded)
	if err == nil {
		z.taken = time.Now()
		return nil
	}
	// So many orders wait for it that a cold kernel is there sooner; unless it
	// takes none any more, and has to be replaced.
	if !z.late || time.Since(z.taken) > warmTimeout {
		z.line.close()
		z.line = nil
	}
	return fmt.Errorf("order a kernel: %w", err)
}

func (z *zygote) end() {
	if z.cancel != nil {
		z.cancel()
		z.keeping.Wait()
	}
}

// kernelOrder is what a kernel has to become: what the agent is.
type kernelOrder struct {
	Ranged bool     `json:"ranged"`
	Owner  int      `json:"owner"` // of the sandbox's user namespace, as an id of the room
	CPUs   int      `json:"cpus"`
	Limits []rlimit `json:"limits"`
	Keep   uint64   `json:"keep"`   // capabilities
	Filter string   `json:"filter"` // the seccomp program in hexadecimal
}

// giveKernel answers the agent's request for a kernel with one end of its socket.
// The request has no parameters, and nothing is received with it.
func (s *Sandbox) giveKernel(id uint64) error {
	kernel, err := s.orderKernel()
	if err != nil {
		return s.refuse(id, err)
	}
	// That the agent does not read is its own loss.
	_ = s.agent.send(message{Kind: kindKernel, ID: id}, kernel)
	kernel.Close()
	return nil
}

func (s *Sandbox) orderKernel() (_ *os.File, err error) {
	if !s.kernels.take(time.Now()) {
		return nil, fmt.Errorf("%w: %d kernels were forked in a short time", ErrTooMany, maxForks)
	}
	limits, err := s.rlimits()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketpair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	files := []*os.File{theirs, s.pidfd}
	defer func() {
		closeAll(append(files[:1], files[2:]...))
		if err != nil {
			ours.Close()
		}
	}()
	if s.group != nil {
		groups, err := s.group.open()
		if err != nil {
			return nil, err
		}
		files = append(files, groups...)
	}
	ranged := s.room.ranged()
	order := kernelOrder{
		Ranged: ranged, Owner: s.owner(), CPUs: int(math.Ceil(s.limits.CPUs)), Limits: limits,
		Keep: capabilitiesOf(ranged), Filter: hex.EncodeToString(seccompBytes(true)),
	}
	return ours, s.room.zygote.fork(order, files...)
}

// owner is the user of the room that made the sandbox's user namespace.
func (s *Sandbox) owner() int {
	if s.room.ranged() {
		return firstID(s.slot)
	}
	return 0
}

// A sandbox may have this many kernels forked at once, and one more each time
// this much has passed: each costs others a few milliseconds of the zygote.
const (
	maxForks  = 64
	forkEvery = 100 * time.Millisecond
)

// allowance is a bucket of kernels that fills up with time. It has one user.
type allowance struct{ empty time.Time } // when it has been, or would have been, empty

func (a *allowance) take(now time.Time) bool {
	if full := now.Add(-maxForks * forkEvery); a.empty.Before(full) {
		a.empty = full
	}
	next := a.empty.Add(forkEvery)
	if next.After(now) {
		return false
	}
	a.empty = next
	return true
}

// Kernel asks for a process that has everything loaded that kernels commonly
// load. It returns the kernel's socket; a kernel that could not be made closes it.
func (g *Guest) Kernel(ctx context.Context) (*os.File, error) {
	if !g.inside {
		return nil, errNoZygote
	}
	files, err := g.ask(ctx, message{Kind: kindKernel}, 1)
	if refused, ok := errors.AsType[*EgressError](err); ok {
		return nil, errors.New("runtime: fork a kernel: " + refused.Reason)
	}
	if err != nil {
		return nil, err
	}
	return files[0], nil
}
