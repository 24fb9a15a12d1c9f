//go:build linux

package cloud

import (
	"cmp"
	"math"
	goruntime "runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/runtime"
)

// withDefaults fills in what is not limited: the API has to report numbers, and
// they should be those that the runtime enforces.
func withDefaults(l runtime.Limits) runtime.Limits {
	l.CPUs = min(cmp.Or(l.CPUs, 2), float64(goruntime.NumCPU()))
	l.MemoryBytes = cmp.Or(l.MemoryBytes, 2<<30)
	// The files of a sandbox are in memory, and count there too.
	l.DiskBytes = cmp.Or(l.DiskBytes, min(10<<30, l.MemoryBytes/2))
	return l
}

// resources are limits in the API's units.
func resources(l runtime.Limits) control.Resources {
	return control.Resources{CPUs: int(math.Ceil(l.CPUs)), MemoryMB: int(l.MemoryBytes >> 20), DiskMB: int(l.DiskBytes >> 20)}
}
