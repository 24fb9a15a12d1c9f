// Package memtest measures memory in tests.
package memtest

import "runtime"

// Allocated returns how many bytes are allocated while f runs. All other goroutines count, too, so
// the test must not run in parallel with others.
func Allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
