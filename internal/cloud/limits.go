package cloud

import (
	"context"
	"fmt"
	"math"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// maxConnections is the largest number of client connections that a cloud accepts. clientShare
// limits client connections to a fraction of the files that this process may open: one in
// clientShare. The reason for this fraction is that each client connection needs a second
// connection, to a sandbox, and that half of all files are reserved for connections out of
// sandboxes.
const (
	maxConnections = 4096
	clientShare    = 4
)

// connections returns the number of client connections that are allowed at the same time.
func connections() (int, error) {
	files, err := openFiles()
	if err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return int(min(files/clientShare, maxConnections)), nil
}

// limitsOf returns the limits of each sandbox. If the sandboxes run on this machine, their limits
// do not exceed the limits of the container in which this process runs. This does not apply to
// Docker containers and to pods, because they do not run inside that container.
func limitsOf(ctx context.Context, o Options) (engine.Limits, error) {
	if o.Engine == engine.Docker || o.Engine == engine.Kubernetes {
		return o.Limits.WithDefaults(), nil
	}
	bounds, err := machineBounds()
	if err != nil {
		return engine.Limits{}, fmt.Errorf("limits of this container: %w", err)
	}
	l := o.Limits.Within(bounds)
	if l.MemoryBytes < o.Limits.MemoryBytes || l.CPUs < o.Limits.CPUs {
		o.Logger.WarnContext(ctx, "sandboxes get less than was asked for, because this machine or its container has no more", "limits", describe(l))
	}
	return l, nil
}

// resources returns the limits in the API's units.
func resources(l engine.Limits) control.Resources {
	return control.Resources{CPUs: int(math.Ceil(l.CPUs)), MemoryMB: int(l.MemoryBytes >> 20), DiskMB: int(l.DiskBytes >> 20)}
}

// describe returns the limits as text for people.
func describe(l engine.Limits) string {
	return fmt.Sprintf("%g CPUs, %d MiB of memory and %d MiB of disk", l.CPUs, l.MemoryBytes>>20, l.DiskBytes>>20)
}
