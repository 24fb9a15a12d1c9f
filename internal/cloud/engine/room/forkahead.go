//go:build linux

package room

import (
	"context"
	"os"
	"time"
)

const (
	// calm is the time without a request for a sandbox after which warm sandboxes without a
	// kernel get one, if no code was run in the last sandbox. It is also the pause
	// before each warm sandbox after the first is made.
	calm = 20 * time.Millisecond
	// unusedTime is the time for which a kernel that was forked ahead waits for its first use, once
	// its sandbox is in use. The kernel is then ended, because it takes memory, and the sandbox most
	// likely only runs commands.
	unusedTime = time.Minute
)

// forkAhead orders a kernel for a warm sandbox. The kernel waits in the sandbox for the first
// message of envd. Until then it has no owner, no variables and no directory. If forkAhead orders
// no kernel, the sandbox's first kernel is ordered on demand.
func (s *Sandbox) forkAhead(ctx context.Context) {
	if s.kernels.waiting() || !s.room.zygote.isWarm() {
		return
	}
	kernel, err := s.orderKernel(true)
	if err != nil {
		s.room.options.Logger.DebugContext(ctx, "no kernel could be forked ahead", "error", err)
		return
	}
	s.kernels.keep(kernel)
}

// forkForReady forks a kernel for each warm sandbox that has none.
func (r *Room) forkForReady(ctx context.Context) {
	for range len(r.warm.ready) {
		select {
		case s := <-r.warm.ready:
			s.forkAhead(ctx)
			r.warm.ready <- s
		default: // a caller has taken it
			return
		}
	}
}

// takeForked returns the socket of the kernel that was forked ahead, if the kernel still exists.
func (s *Sandbox) takeForked() *os.File {
	s.kernels.ran = true
	s.room.warm.codeRuns.Store(true)
	return s.kernels.take()
}

// noteCode is called when a used sandbox has ended. If no code was run in the sandbox, noteCode
// records this: the next sandbox then most likely runs only a command, too, and the fork of a kernel
// would slow it down. If code was run, noteCode does nothing.
func (s *Sandbox) noteCode() {
	if !s.kernels.ran {
		s.room.warm.codeRuns.Store(false)
	}
}
