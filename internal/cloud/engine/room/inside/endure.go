//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// endureSignals protects envd from all signals that the sandbox's own root can send. It installs a
// handler for the signals. It does not ignore them, because children would inherit ignored signals.
func endureSignals() error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS,
		unix.SIGFPE, unix.SIGSEGV, unix.SIGTERM, unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGSYS)
	// The Go runtime leaves these signals to C libraries. The kernel protects the
	// first process of a sandbox from unhandled signals only if they arrive while
	// its first thread does not block them.
	for number := unix.Signal(32); number <= 34; number++ {
		var own, present sigaction
		if err := errors.Join(exchange(number, nil, &present), exchange(unix.SIGTERM, nil, &own)); err != nil {
			return err
		}
		own.handler = nothingPC
		if present.handler == 0 { // SIG_DFL
			if err := exchange(number, &own, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// spareThreads is the number of threads that envd starts in advance if it shares the limit of
// processes with all other processes of the sandbox. The reason is that the Go runtime ends a program
// if it needs another thread and cannot start one.
const spareThreads = 16

// keepThreads makes the runtime start n threads. The runtime keeps threads that are not in use.
func keepThreads(n int) {
	var started sync.WaitGroup
	release := make(chan struct{})
	for range n {
		started.Add(1)
		go func() {
			runtime.LockOSThread() // so that it needs a thread of its own
			defer runtime.UnlockOSThread()
			started.Done()
			<-release
		}()
	}
	started.Wait()
	close(release)
}

// nothingPC is the address of a signal handler that does nothing.
var nothingPC uintptr

// sigaction is the kernel's struct sigaction on 64-bit machines.
type sigaction struct{ handler, flags, restorer, mask uintptr }

// exchange sets the action for a signal to next, and stores the earlier action in present. Each
// of the two pointers may be nil.
func exchange(number unix.Signal, next, present *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(present)),
		unsafe.Sizeof(sigaction{}.mask), 0, 0)
	if errno != 0 {
		return fmt.Errorf("handle signal %d: %w", number, errno)
	}
	return nil
}
