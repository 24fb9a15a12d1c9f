//go:build linux

package room

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"golang.org/x/sys/unix"
)

// pause is the state that the freezing of a sandbox needs.
type pause struct {
	standstill link.Standstill

	asked uint64 // number of requests to the process that runs gVisor; guarded by the turn of the standstill
	// answers carries the answers of the process that runs gVisor. It is guarded by the turn of the
	// standstill, too.
	answers chan wire.Message

	ordering sync.Mutex // held while a new kernel is requested; guards held and ordered
	held     bool       // no kernel may be ordered
	ordered  []int      // pipes; each becomes readable when an ordered kernel has joined the groups or has failed
}

func newPause() pause { return pause{answers: make(chan wire.Message, 4)} }

// joinPatience bounds the wait for ordered kernels. A kernel that joins later has to wait for envd,
// and envd does not answer before the thaw.
const joinPatience = time.Second

// holdKernels forbids new orders of kernels. It waits until the kernels that are already ordered have
// joined the processes of the sandbox.
func (p *pause) holdKernels(ctx context.Context) {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	p.held = true
	for deadline := time.Now().Add(joinPatience); ctx.Err() == nil && time.Now().Before(deadline); {
		if p.forgetJoined(20*time.Millisecond) == 0 {
			return
		}
	}
}

// orderKernels allows ordering kernels again.
func (p *pause) orderKernels() {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	p.held = false
}

// order runs f. f orders a kernel, and passes the file joined to the kernel. When the kernel has
// joined the sandbox's control groups, it also writes to joined, in the same way as to the files of
// the groups.
func (p *pause) order(f func(joined *os.File) error) error {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	if p.held {
		return engine.ErrFrozen
	}
	p.forgetJoined(0)
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	joined := os.NewFile(uintptr(ends[1]), "joined")
	defer joined.Close()
	if err := f(joined); err != nil {
		wire.CloseFD(ends[0])
		return err
	}
	p.ordered = append(p.ordered, ends[0])
	return nil
}

// forgetJoined waits until an ordered kernel has joined the sandbox's control groups or has failed,
// but at most for the given time. It removes all such kernels from p.ordered, and returns the
// number of kernels that remain there.
func (p *pause) forgetJoined(wait time.Duration) (left int) {
	if len(p.ordered) == 0 {
		return 0
	}
	polled := make([]unix.PollFd, len(p.ordered))
	for i, fd := range p.ordered {
		polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(polled, int(wait.Milliseconds())); err != nil {
		return len(p.ordered) // interrupted
	}
	p.ordered = p.ordered[:0]
	for _, fd := range polled {
		if fd.Revents == 0 {
			p.ordered = append(p.ordered, int(fd.Fd))
			continue
		}
		wire.CloseFD(int(fd.Fd))
	}
	return len(p.ordered)
}

// end forgets all orders.
func (p *pause) end() {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	p.held = true
	for _, fd := range p.ordered {
		wire.CloseFD(fd)
	}
	p.ordered = nil
}
