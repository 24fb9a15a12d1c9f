package engine

import (
	"fmt"
	"runtime"
)

// processors is the number of processors that a sandbox may use at most.
var processors = runtime.NumCPU()

// Limits bound one sandbox. Zero values mean the defaults: 2 CPUs, 2 GiB of memory,
// 1024 processes and threads, and 10 GiB of disk or half of the memory, whichever
// is less, because what is written to disk is held in memory and counts as memory.
// Each process may open half of the machine's files (fs.file-max) divided by
// Processes, or half of what the server may open if that is less, but at least 256.
// In gVisor they are divided by 64, if Processes is more.
type Limits struct {
	MemoryBytes  int64
	CPUs         float64
	MaxProcesses int
	DiskBytes    int64
}

// Bounds are what all programs of this machine that share a container may use together.
// Zero values are no bounds.
type Bounds struct {
	MemoryBytes int64
	CPUs        float64
}

// WithDefaults returns the limits that are enforced: zero values are replaced by
// the defaults, and CPUs is at most the number of the machine's.
func (l Limits) WithDefaults() Limits { return l.Within(Bounds{}) }

// Within returns the limits that are enforced within bounds, as [Limits.WithDefaults] does.
// A limit above its bound is lowered to it: the kernel refuses the one or never applies it.
func (l Limits) Within(b Bounds) Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = 2 << 30
	}
	if b.MemoryBytes > 0 {
		l.MemoryBytes = min(l.MemoryBytes, b.MemoryBytes)
	}
	if l.CPUs == 0 {
		l.CPUs = 2
	}
	l.CPUs = min(l.CPUs, float64(processors))
	if b.CPUs > 0 {
		l.CPUs = min(l.CPUs, b.CPUs)
	}
	if l.MaxProcesses == 0 {
		l.MaxProcesses = 1024
	}
	if l.DiskBytes == 0 {
		// The files of a sandbox are in memory, and count as memory too.
		l.DiskBytes = min(10<<30, l.MemoryBytes/2)
	}
	return l
}

// What a sandbox needs at least to start.
const (
	minMemoryBytes = 16 << 20
	minCPUs        = 0.01
	minProcesses   = 16
	minDiskBytes   = 1 << 20
)

// Check returns an error that matches [ErrLimits] and names the limit if nothing can start
// within the limits.
func (l Limits) Check() error {
	switch {
	case l.MemoryBytes < minMemoryBytes:
		return fmt.Errorf("%w: %d bytes of memory, and %d are the least", ErrLimits, l.MemoryBytes, minMemoryBytes)
	case l.CPUs < minCPUs:
		return fmt.Errorf("%w: %g CPUs, and %g are the least", ErrLimits, l.CPUs, minCPUs)
	case l.MaxProcesses < minProcesses:
		return fmt.Errorf("%w: %d processes, and %d are the least", ErrLimits, l.MaxProcesses, minProcesses)
	case l.DiskBytes < minDiskBytes:
		return fmt.Errorf("%w: %d bytes of disk, and %d are the least", ErrLimits, l.DiskBytes, minDiskBytes)
	}
	return nil
}
