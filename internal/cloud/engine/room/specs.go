//go:build linux

package room

import (
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// The specifications below go to processes that are trusted less than the server. Each names the
// fields that it takes from the sandbox's options, and its process receives nothing else of them.
// TestOptionsSent has a reason for each field that a process does not receive.

// initSpec returns the specification of the first stage, without the parts that come with files.
func (s *Sandbox) initSpec() wire.InitSpec {
	trees, links := s.ofHost()
	return wire.InitSpec{
		Ranged:     s.room.ranged(),
		Root:       s.root,
		Path:       s.room.options.Path,
		Trees:      trees,
		Mounted:    make([]bool, len(trees)),
		Links:      links,
		Image:      s.options.Image != nil,
		Disk:       s.limits.DiskBytes,
		Memory:     s.limits.MemoryBytes,
		Processors: s.cpus,
		EgressPath: s.room.egressPath,
		Authority:  s.options.Authority,

		Counters: s.room.counted.InSandbox(),
	}
}

// authoritySpec returns the specification of a mounter that shows an authority in a warm sandbox.
func (s *Sandbox) authoritySpec() wire.InitSpec {
	return wire.InitSpec{Authority: s.options.Authority, Trees: s.room.trees}
}

// enterSpec returns the specification of the process that enters the root of an image.
func (s *Sandbox) enterSpec() wire.EnterSpec {
	return wire.EnterSpec{Authority: s.options.Authority}
}

// envdSpec returns the specification of the second stage.
func (s *Sandbox) envdSpec() wire.EnvdSpec {
	return wire.EnvdSpec{
		Hostname: s.options.ID,
		Egress:   s.options.Egress != nil,
		Restored: s.options.Memory != "",
		GVisor:   s.room.runsc != nil,
		Network:  s.exit != nil,
		Ranged:   s.room.ranged(),
		Root:     s.root,
	}
}

// buildSpec describes the file system of the sandbox whose first process is pid, and returns the
// files for building it. The caller must close them, after an error as well.
func (s *Sandbox) buildSpec(pid int) (spec wire.InitSpec, mounts []*os.File, err error) {
	ranged := s.room.ranged()
	spec = s.initSpec()
	if ranged {
		if mounts, err = s.mapTrees(pid, spec.Trees); err != nil {
			return spec, mounts, err
		}
		for i := range mounts {
			spec.Mounted[i] = true
		}
	}
	var more []*os.File
	if spec.Layers, more, err = s.mountLayers(pid); err != nil {
		return spec, mounts, err
	}
	mounts = append(mounts, more...)
	if spec.Volumes, more, err = s.mountVolumes(pid); err != nil {
		return spec, mounts, err
	}
	mounts = append(mounts, more...)
	shown, more, err := s.mountHost()
	if err != nil {
		return spec, mounts, err
	}
	spec.Volumes, mounts = append(spec.Volumes, shown...), append(mounts, more...)
	if ranged && s.files == nil { // in the other cases it has them already
		devices, err := makeDevices()
		if err != nil {
			return spec, mounts, err
		}
		if spec.Devices = devices != nil; spec.Devices {
			mounts = append(mounts, devices)
		}
	}
	if ranged && len(spec.Trees) > 0 {
		list, err := s.listUnshown()
		if err != nil {
			return spec, mounts, err
		}
		mounts, spec.Private = append(mounts, list), true
	}
	if s.options.Files != "" {
		saved, err := openSaved(s.options.Files)
		if err != nil {
			return spec, mounts, err
		}
		mounts, spec.Saved = append(mounts, saved), s.savedLayout()
	}
	if s.room.runsc != nil {
		spec.GVisor = true
		if spec.Program, more, err = s.room.programMount(); err != nil {
			return spec, mounts, err
		}
		mounts = append(mounts, more...)
	}
	if len(mounts) >= wire.MaxFiles {
		err = fmt.Errorf("%w: %d layers and %d volumes, with all else that it has", engine.ErrTooMany, len(spec.Layers), len(spec.Volumes))
	}
	return spec, mounts, err
}
