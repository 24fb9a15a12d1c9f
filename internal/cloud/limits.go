package cloud

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
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
		return o.Limits.Within(o.Most), nil
	}
	bounds, err := machineBounds()
	if err != nil {
		return engine.Limits{}, fmt.Errorf("limits of this container: %w", err)
	}
	l := o.Limits.Within(bounds.And(o.Most))
	if l.MemoryBytes < o.Limits.MemoryBytes || l.CPUs < o.Limits.CPUs {
		o.Logger.WarnContext(ctx, "sandboxes get less than was asked for, because this machine or its container has no more, or because no sandbox may have more", "limits", describe(l))
	}
	return l, nil
}

// boundDocker lowers the limits that the options set for Docker containers to the maximum of one
// sandbox.
func (o *Options) boundDocker(ctx context.Context) {
	d := &o.Docker
	within := engine.Resources{CPUs: d.CPUs, MemoryBytes: d.MemoryBytes}.Within(o.Most)
	if within.CPUs < d.CPUs || within.MemoryBytes < d.MemoryBytes {
		o.Logger.WarnContext(ctx, "Docker containers get less than was asked for, because no sandbox may have more", "CPUs", within.CPUs, "memory", within.MemoryBytes)
	}
	d.CPUs, d.MemoryBytes = within.CPUs, within.MemoryBytes
}

// machine returns the resources of the machine that runs the sandboxes of an engine. A zero field means
// that the resource is unknown.
func (c *Cloud) machine(name engine.Name) engine.Bounds {
	switch name {
	case engine.Kubernetes:
		return engine.Bounds{} // each node has something else
	case engine.Docker:
		if opened, known := c.engines.latest.Load(name); known {
			return opened.(engine.Engine).Report().Most
		}
		return engine.Bounds{}
	}
	return thisMachine()
}

// thisMachine returns the resources of this machine, lowered to the bounds of the container in which
// this process runs.
var thisMachine = sync.OnceValue(func() engine.Bounds {
	bounds, _ := machineBounds() // limitsOf reports the error
	return bounds.And(engine.Bounds{CPUs: float64(runtime.NumCPU()), MemoryBytes: machineMemory()})
})

// bounds returns the maximum resources of one sandbox of an engine.
func (c *Cloud) bounds(name engine.Name) engine.Bounds { return c.options.Most.And(c.machine(name)) }

// baseLimits returns the limits of a sandbox that requests no resources. name is the sandbox's engine.
func (c *Cloud) baseLimits(name engine.Name) engine.Limits {
	if name == engine.Docker {
		return c.options.Docker.Limits(c.options.Limits)
	}
	return c.options.Limits
}

// limitsWith returns the limits of a sandbox that requests the resources asked. name is the sandbox's
// engine.
func (c *Cloud) limitsWith(name engine.Name, asked engine.Resources) engine.Limits {
	return c.baseLimits(name).With(asked.Within(c.bounds(name)))
}

// limitsFor returns the limits of the sandbox that spec describes.
func (c *Cloud) limitsFor(name engine.Name, spec lifecycle.Spec) engine.Limits {
	return c.limitsWith(name, spec.Resources.Over(spec.Template.Resources))
}

// checkResources returns an error if no sandbox of an engine can have the resources that a client
// asks for. Resources of templates are lowered instead. It opens the engine if necessary.
func (c *Cloud) checkResources(ctx context.Context, name engine.Name, asked engine.Resources) error {
	if _, err := c.engines.get(ctx, name); err != nil {
		return err
	}
	most, machine := c.options.Most, c.machine(name)
	var reason string
	switch {
	case most.CPUs > 0 && asked.CPUs > most.CPUs:
		reason = fmt.Sprintf("resources.cpuCount is %g, and a sandbox of this local cloud has at most %g (e2bctl local up --max-cpus, local.WithMaxCPUs in Go)", asked.CPUs, most.CPUs)
	case machine.CPUs > 0 && asked.CPUs > machine.CPUs:
		reason = fmt.Sprintf("resources.cpuCount is %g, and the machine of this local cloud has %g", asked.CPUs, machine.CPUs)
	case most.MemoryBytes > 0 && asked.MemoryBytes > most.MemoryBytes:
		reason = fmt.Sprintf("resources.memoryBytes is %d, and a sandbox of this local cloud has at most %d (e2bctl local up --max-memory, local.WithMaxMemoryBytes in Go)", asked.MemoryBytes, most.MemoryBytes)
	case machine.MemoryBytes > 0 && asked.MemoryBytes > machine.MemoryBytes:
		reason = fmt.Sprintf("resources.memoryBytes is %d, and the machine of this local cloud has %d", asked.MemoryBytes, machine.MemoryBytes)
	default:
		err := c.baseLimits(name).With(asked).WithDefaults().Check()
		if err == nil {
			return nil
		}
		reason = "resources: " + err.Error()
	}
	return &lifecycle.RefusedError{Reason: reason}
}

// describeBuild describes the limits of a template's sandboxes if the template requests the resources
// asked.
func (c *Cloud) describeBuild(name engine.Name, asked engine.Resources) string {
	has := c.limitsWith(name, asked)
	text := "Sandboxes of this template have " + describe(has)
	if has.CPUs < asked.CPUs || has.MemoryBytes < asked.MemoryBytes {
		text += fmt.Sprintf(", which is the most here: %s are asked for", describe(c.baseLimits(name).With(asked)))
	}
	return text
}

// resources returns the limits in the API's units.
func resources(l engine.Limits) control.Resources {
	return control.Resources{CPUs: int(math.Ceil(l.CPUs)), MemoryMB: int(l.MemoryBytes >> 20), DiskMB: int(l.DiskBytes >> 20)}
}

// describe returns the limits as text for people.
func describe(l engine.Limits) string {
	return fmt.Sprintf("%g CPUs, %d MiB of memory and %d MiB of disk", l.CPUs, l.MemoryBytes>>20, l.DiskBytes>>20)
}
