package engine

import (
	"cmp"
	"fmt"
	"runtime"
)

// processors is the maximum number of processors that a sandbox can use.
var processors = runtime.NumCPU()

// Limits bound one sandbox. Zero values mean the defaults: 2 CPUs, 2 GiB of memory, 1024 processes
// and threads, and 10 GiB of disk or half of the memory, whichever is less. Files on disk are held
// in memory and count as memory. The number of files that each process may open is half of the
// machine's maximum (fs.file-max) divided by MaxProcesses. The result is at most half of the server's
// own limit, and at least 256. In gVisor, the divisor is 64 if MaxProcesses is more than 64.
type Limits struct {
	MemoryBytes  int64
	CPUs         float64
	MaxProcesses int
	DiskBytes    int64
}

// Resources are the requested resources of one sandbox. A zero field means the limit of the cloud.
type Resources struct {
	CPUs        float64 `json:",omitempty"`
	MemoryBytes int64   `json:",omitempty"`
	DiskBytes   int64   `json:",omitempty"`
}

// Over returns r with each zero field replaced by the same field of below.
func (r Resources) Over(below Resources) Resources {
	return Resources{
		CPUs: cmp.Or(r.CPUs, below.CPUs), MemoryBytes: cmp.Or(r.MemoryBytes, below.MemoryBytes), DiskBytes: cmp.Or(r.DiskBytes, below.DiskBytes),
	}
}

// Within returns r with each field lowered to its bound.
func (r Resources) Within(b Bounds) Resources {
	if b.CPUs > 0 {
		r.CPUs = min(r.CPUs, b.CPUs)
	}
	if b.MemoryBytes > 0 {
		r.MemoryBytes = min(r.MemoryBytes, b.MemoryBytes)
	}
	return r
}

// With returns the limits of a sandbox that requests the resources r. The limit of the disk does not
// depend on the memory in r.
func (l Limits) With(r Resources) Limits {
	r = r.Over(Resources{CPUs: l.CPUs, MemoryBytes: l.MemoryBytes, DiskBytes: l.DiskBytes})
	l.CPUs, l.MemoryBytes, l.DiskBytes = r.CPUs, r.MemoryBytes, r.DiskBytes
	return l
}

// Bounds are upper bounds of a sandbox's limits: the resources of a machine or of a container, or the
// maximum that a cloud permits. A zero field means that there is no bound.
type Bounds struct {
	MemoryBytes int64
	CPUs        float64
}

// And returns the lower of both bounds for each limit.
func (b Bounds) And(other Bounds) Bounds {
	if b.CPUs == 0 || other.CPUs > 0 && other.CPUs < b.CPUs {
		b.CPUs = other.CPUs
	}
	if b.MemoryBytes == 0 || other.MemoryBytes > 0 && other.MemoryBytes < b.MemoryBytes {
		b.MemoryBytes = other.MemoryBytes
	}
	return b
}

// WithDefaults returns the limits to enforce: defaults replace zero values, and CPUs is at most the
// number of the machine's processors.
func (l Limits) WithDefaults() Limits { return l.Within(Bounds{}) }

// Within is like [Limits.WithDefaults], but it also lowers each limit that is above its bound. The
// kernel would refuse such a limit, or the limit would never take effect.
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

// The lowest limits with which a sandbox can start.
const (
	minMemoryBytes = 16 << 20
	minCPUs        = 0.01
	minProcesses   = 16
	minDiskBytes   = 1 << 20
)

// Check returns an error if no sandbox can start within the limits. The error matches [ErrLimits] and
// names the limit that is too low.
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
