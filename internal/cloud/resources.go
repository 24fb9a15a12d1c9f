//go:build linux

package cloud

import (
	goruntime "runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/runtime"
)

// What the API reports of sandboxes without limits of their own: the runtime's
// defaults.
const (
	defaultMemoryMB = 2048
	defaultDiskMB   = 10240
	defaultCPUs     = 2
)

// resources are the limits in the API's units.
func resources(l runtime.Limits) control.Resources {
	r := control.Resources{CPUs: int(l.CPUs), MemoryMB: int(l.MemoryBytes >> 20), DiskMB: int(l.DiskBytes >> 20)}
	if r.CPUs == 0 {
		r.CPUs = min(defaultCPUs, goruntime.NumCPU())
	}
	if r.MemoryMB == 0 {
		r.MemoryMB = defaultMemoryMB
	}
	if r.DiskMB == 0 {
		r.DiskMB = defaultDiskMB
	}
	return r
}
