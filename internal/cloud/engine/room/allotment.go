//go:build linux

package room

import (
	"math"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// allotment is the part of the machine that a sandbox may use.
type allotment struct {
	group *cgroup.Group // limits the processes of the sandbox together; nil before boot has made it

	mu     sync.Mutex // guards the fields below once the sandbox is open
	limits engine.Limits
	cpus   []int // the processors that the sandbox runs on
}

// processors returns the number of processors that programs of the sandbox count, and the processors
// that they run on.
func (a *allotment) processors() (count int, on []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(math.Ceil(a.limits.CPUs)), append([]int{}, a.cpus...)
}

// move records the processors that the sandbox runs on from now on.
func (a *allotment) move(to []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cpus = to
}

// resize records the processors, the memory and the disk of l as the limits.
func (a *allotment) resize(l engine.Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits.CPUs, a.limits.MemoryBytes, a.limits.DiskBytes = l.CPUs, l.MemoryBytes, l.DiskBytes
}
