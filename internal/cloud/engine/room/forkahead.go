//go:build linux

package room

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// forkAhead orders a kernel for a warm sandbox, which waits in it for the first message
// of envd: until then it is nobody's, and knows neither variables nor a directory.
// Without one, the sandbox's first kernel is ordered when it is asked for.
func (s *Sandbox) forkAhead(ctx context.Context) {
	if s.forked != nil || !s.room.zygote.isWarm() {
		return
	}
	var err error
	if s.forked, err = s.orderKernel(); err != nil {
		s.room.options.Logger.DebugContext(ctx, "no kernel could be forked ahead", "error", err)
	}
}

// takeForked returns the socket of the kernel that was forked ahead, if it is still there.
func (s *Sandbox) takeForked() *os.File {
	kernel := s.forked
	s.forked = nil
	if kernel != nil && hungUp(kernel) {
		kernel.Close()
		return nil
	}
	return kernel
}

// hungUp reports whether the kernel at the other end of the socket is gone.
func hungUp(kernel *os.File) bool {
	polled := []unix.PollFd{{Fd: int32(kernel.Fd()), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(polled, 0)
	return n != 0 || err != nil
}

// endForked ends the kernel that was forked ahead: it sees that its socket is closed.
func (s *Sandbox) endForked() {
	if s.forked != nil {
		s.forked.Close()
		s.forked = nil
	}
}
