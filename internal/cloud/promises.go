package cloud

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// check returns an error if an engine does not promise a feature. It must be called before the
// feature is used. The error is a [*lifecycle.RefusedError]. Its text names the feature by the
// parameter what, a name that clients know.
func check(by engine.Report, f engine.Feature, what string) error {
	why := by.Promises[f]
	if why == "" {
		return nil
	}
	return &lifecycle.RefusedError{Unsupported: true, Reason: fmt.Sprintf("not supported by the %s engine: %s: %s", by.Engine, what, why)}
}

// partOf returns the name of the part of a create request that needs the feature f. Clients know
// this name.
func partOf(f engine.Feature) string {
	switch f {
	case engine.Images:
		return "the image of the template"
	case engine.SavedFiles, engine.SharedLayers:
		return "the files of the template or sandbox"
	case engine.Volumes:
		return "volumeMounts"
	case engine.NetworkRules:
		return "network rules (allowOut, denyOut, dnsServers, egressProxy, ask)"
	case engine.HeaderRules:
		return "network.rules"
	case engine.Mounts:
		return "mounts"
	case engine.CPULimit:
		return "resources.cpuCount"
	case engine.MemoryLimit:
		return "resources.memoryBytes"
	case engine.DiskLimit:
		return "resources.diskBytes"
	case engine.IdleLimits:
		return "idleTimeout"
	}
	return string(f)
}

// checkSpec returns an error if a sandbox needs a feature that its engine does not promise.
// mounted means that every sandbox has mounts.
func checkSpec(by engine.Report, spec lifecycle.Spec, mounted bool) error {
	pause := engine.SavedFiles
	if spec.KeepMemory {
		pause = engine.Pauses
	}
	for _, one := range []struct {
		wanted  bool
		feature engine.Feature
		what    string
	}{
		{spec.Template.Image != nil, engine.Images, partOf(engine.Images)},
		{len(spec.Layers) > 0 || spec.Files != "", engine.SavedFiles, partOf(engine.SavedFiles)},
		{len(spec.Volumes) > 0, engine.Volumes, partOf(engine.Volumes)},
		{spec.Egress.Partial(), engine.NetworkRules, partOf(engine.NetworkRules)},
		{spec.Headers, engine.HeaderRules, partOf(engine.HeaderRules)},
		{len(spec.Mounts) > 0, engine.Mounts, partOf(engine.Mounts)},
		{spec.Resources.CPUs > 0, engine.CPULimit, partOf(engine.CPULimit)},
		{spec.Resources.MemoryBytes > 0, engine.MemoryLimit, partOf(engine.MemoryLimit)},
		{spec.Resources.DiskBytes > 0, engine.DiskLimit, partOf(engine.DiskLimit)},
		{spec.Use != nil, engine.IdleLimits, partOf(engine.IdleLimits)},
		{mounted, engine.Mounts, "mounts of every sandbox (local.WithMount)"},
		{spec.AutoPause && spec.AutoResume, engine.Pauses, "autoResume"}, // requests need the programs that ran before
		{spec.AutoPause && !by.Suspends, pause, "autoPause"},
	} {
		if !one.wanted {
			continue
		}
		if err := check(by, one.feature, one.what); err != nil {
			return err
		}
	}
	if why := by.Promises[engine.SavedMemory]; why != "" && spec.Memory != "" {
		return fmt.Errorf("%w: not supported by the %s engine: %s", engine.ErrOtherMachine, by.Engine, why)
	}
	return nil
}

// Check returns an error if the sandbox's engine does not promise a feature.
func (r *reachable) Check(f engine.Feature) error { return check(r.engine, f, string(f)) }

// EngineReport describes the features of an engine. It opens the engine if necessary. The error
// names the features that the engine needs and this machine lacks.
func (c *Cloud) EngineReport(name engine.Name) (engine.Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openDeadline)
	defer cancel()
	e, err := c.engines.open(ctx, name)
	if err != nil {
		return engine.Report{}, err
	}
	return e.Report(), nil
}
