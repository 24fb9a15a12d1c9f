// Package memtest measures memory in tests.
package memtest

import "runtime"

// Allocated returns the number of bytes that are allocated while f runs. The allocations of all
// other goroutines count, too. So the test must not run in parallel with other tests.
func Allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
