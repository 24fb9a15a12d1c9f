//go:build linux

package cloud

import (
	"math"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/runtime"
)

// resources are limits in the API's units.
func resources(l runtime.Limits) control.Resources {
	return control.Resources{CPUs: int(math.Ceil(l.CPUs)), MemoryMB: int(l.MemoryBytes >> 20), DiskMB: int(l.DiskBytes >> 20)}
}
