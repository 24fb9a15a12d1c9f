//go:build linux

package spawn

import (
	"runtime"
	"sync"
)

// How many processors a supervisor uses, and how many threads it has in addition: for slow calls
// into the kernel, and for Go's own.
const (
	KeeperProcessors = 2 // for the keeper, and for the guard
	RoomProcessors   = 4
	spareThreads     = 4
)

// Supervise makes all threads that this process will need. Sandboxes may later take every process
// and thread that the machine allows, and a process that cannot make a thread then ends.
func Supervise(processors int) {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	ReserveThreads(processors + spareThreads)
}

// ThreadsOf returns how many threads a supervisor has, including Go's own.
func ThreadsOf(processors int) int { return processors + spareThreads + ownThreads }

// ownThreads is the number of further threads: the one that starts children, and Go's.
const ownThreads = 5

// ReserveThreads makes n threads, which then wait for work. Go ends a process that needs another
// thread and cannot have it, and ends no idle thread: after this, n goroutines and calls into the
// kernel may run at once although no more threads can be made.
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
