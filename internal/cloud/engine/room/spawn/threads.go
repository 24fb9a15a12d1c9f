//go:build linux

package spawn

import (
	"runtime"
	"sync"
)

// KeeperProcessors and RoomProcessors are the numbers of processors that supervisors use.
// spareThreads is the number of additional threads of a supervisor, for slow calls into the kernel
// and for Go's runtime.
const (
	KeeperProcessors = 2 // for the keeper, and for the guard
	RoomProcessors   = 4
	spareThreads     = 4
)

// Supervise makes all threads that this process will need. Sandboxes may later use up all processes
// and threads that the machine allows. If this process then needed another thread, it could not
// make the thread, and would end.
func Supervise(processors int) {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	ReserveThreads(processors + spareThreads)
}

// ThreadsOf returns the number of threads of a supervisor, including Go's own.
func ThreadsOf(processors int) int { return processors + spareThreads + ownThreads }

// ownThreads is the number of further threads: the thread that starts children, and Go's own.
const ownThreads = 5

// ReserveThreads makes n threads, which then wait for work. Go ends a process that needs another
// thread and cannot make it. Go never ends idle threads. So after ReserveThreads, n goroutines and
// calls into the kernel may run at once even if no more threads can be made.
func ReserveThreads(n int) {
	var all, ended sync.WaitGroup
	all.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // so that each goroutine needs a thread of its own
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	ended.Wait()
}
