//go:build linux

package room

import (
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// The specifications below go to processes that are trusted less than the server. Each names the
// fields that it takes from the sandbox's options, and its process receives nothing else of them.
// TestOptionsSent has a reason for each field that a process does not receive.

// runs describes how the programs of the sandbox run. The runner adds its own part.
func (s *Sandbox) runs() wire.Runner { return wire.Runner{Ranged: s.room.ranged(), Root: s.files.root} }

// initSpec returns the specification of the first stage, without the parts that depend on the files
// that are sent with it.
func (s *Sandbox) initSpec() wire.InitSpec {
	trees, links := s.ofHost()
	return wire.InitSpec{
		Runner:     s.runs(),
		Path:       s.room.options.Path,
		Trees:      trees,
		Mounted:    make([]bool, len(trees)),
		Links:      links,
		Image:      s.options.Image != nil,
		Disk:       s.share.limits.DiskBytes,
		Memory:     s.share.limits.MemoryBytes,
		Processors: s.share.cpus,
		EgressPath: s.room.egressPath,
		Authority:  s.options.Authority,

		Counters: s.room.roster.counted.InSandbox(),
	}
}

// authoritySpec returns the specification of a mounter that mounts an authority in a warm sandbox.
func (s *Sandbox) authoritySpec() wire.InitSpec {
	return wire.InitSpec{Authority: s.options.Authority, Trees: s.room.trees.paths}
}

// enterSpec returns the specification of the process that enters the root of an image.
func (s *Sandbox) enterSpec() wire.EnterSpec {
	return wire.EnterSpec{Authority: s.options.Authority}
}

// envdSpec returns the specification of the second stage.
func (s *Sandbox) envdSpec() wire.EnvdSpec {
	spec := wire.EnvdSpec{
		Hostname: s.options.ID,
		Egress:   s.options.Egress != nil,
		Restored: s.options.Memory != "",
		Network:  s.traffic.exit != nil,
		Runner:   s.runs(),
	}
	if spec.Network {
		spec.Names = s.options.Names
	}
	return spec
}

// buildSpec describes the file system of the sandbox whose first process is pid, and adds the files
// for building it to files.
func (s *Sandbox) buildSpec(pid int, files *wire.Files) (spec wire.InitSpec, err error) {
	ranged := s.room.ranged()
	spec = s.initSpec()
	if ranged {
		trees, err := s.mapTrees(pid, spec.Trees)
		if err != nil {
			return spec, err
		}
		files.AddList(wire.FileTree, trees)
		for i := range trees {
			spec.Mounted[i] = true
		}
	}
	if spec.Layers, err = s.mountLayers(pid, files); err != nil {
		return spec, err
	}
	if spec.Volumes, err = s.mountVolumes(pid, files); err != nil {
		return spec, err
	}
	if spec.Volumes, err = s.mountHost(spec.Volumes, files); err != nil {
		return spec, err
	}
	if ranged && s.files.written == nil { // in the other cases it has them already
		devices, err := makeDevices()
		if err != nil {
			return spec, err
		}
		if spec.Devices = devices != nil; spec.Devices {
			files.Add(wire.FileDevices, devices)
		}
	}
	if ranged && len(spec.Trees) > 0 {
		list, err := s.files.hide(s.room.trees.private.result.Load())
		if err != nil {
			return spec, err
		}
		files.Add(wire.FilePrivate, list)
		spec.Private = true
	}
	if s.options.Files != "" {
		saved, err := openSaved(s.options.Files)
		if err != nil {
			return spec, err
		}
		files.Add(wire.FileSaved, saved)
		spec.Saved = s.savedLayout()
	}
	if err := s.room.runner.build(&spec, files); err != nil {
		return spec, err
	}
	if files.Len() >= wire.MaxFiles {
		err = fmt.Errorf("%w: %d layers and %d volumes, with all else that it has", engine.ErrTooMany, len(spec.Layers), len(spec.Volumes))
	}
	return spec, err
}
