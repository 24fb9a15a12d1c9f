//go:build linux

package spawn

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// starter is a thread that starts children. The kernel sends the parent-death signal when the
// starting thread ends, not when the process ends. So the thread lives until all its children have
// ended. All children share one thread, so that more children need no more threads.
type starter struct {
	work  chan func()
	users int  // number of children and of starts in progress; guarded by starting
	away  bool // the thread could not be restored; guarded by starting
}

// starting contains the starter of the next child, if there is one.
var starting struct {
	sync.Mutex
	next *starter
}

// takeStarter returns the starter of a child. The caller must release it.
func takeStarter() *starter {
	starting.Lock()
	defer starting.Unlock()
	if starting.next == nil {
		starting.next = &starter{work: make(chan func())}
		go starting.next.run()
	}
	starting.next.users++
	return starting.next
}

func (s *starter) run() {
	runtime.LockOSThread()
	for f := range s.work {
		f()
	}
	starting.Lock()
	defer starting.Unlock()
	if !s.away { // otherwise the thread ends with this goroutine
		runtime.UnlockOSThread()
	}
}

// release ends the thread when its last child and start have ended.
func (s *starter) release() {
	starting.Lock()
	defer starting.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	close(s.work)
	if starting.next == s {
		starting.next = nil
	}
}

// spoil makes the next child start on another thread.
func (s *starter) spoil() {
	starting.Lock()
	defer starting.Unlock()
	s.away = true
	if starting.next == s {
		starting.next = nil
	}
}

// awaitEnd waits until a child has ended, without occupying a thread. It returns early where the
// kernel does not allow that.
func awaitEnd(child *os.Process) {
	fd, err := unix.PidfdOpen(child.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	defer pidfd.Close()
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // the wait that follows returns the error
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
