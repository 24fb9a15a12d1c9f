//go:build linux

package room

import (
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// mountVolumes makes a mount of each volume for the sandbox whose first process is pid. The server
// makes the mounts because only the server may enter the directories of volumes, and because files
// of low ids must belong to the same ids of the sandbox. If a sandbox has a single id, no ids are
// mapped, and the sandbox's first process finds the directories.
func (s *Sandbox) mountVolumes(pid int, files *wire.Files) (volumes []wire.Volume, err error) {
	if len(s.options.Volumes) == 0 {
		return nil, nil
	}
	if !s.room.ranged() {
		for _, v := range s.options.Volumes {
			if v.Clone != nil {
				return nil, engine.Lackf(engine.Volumes, "it has a file system of its own, and sandboxes have a single id here")
			}
			volumes = append(volumes, wire.Volume{Dir: v.Dir, Path: v.Path})
		}
		return volumes, nil
	}
	ids, err := openUserNamespace(pid)
	if err != nil {
		return nil, err
	}
	defer ids.Close()
	for i, v := range s.options.Volumes {
		mount, err := mapVolume(v, ids)
		if err != nil {
			return nil, fmt.Errorf("the volume for %s: %w", v.Path, err)
		}
		files.Add(wire.FileVolume.Numbered(i), mount)
		volumes = append(volumes, wire.Volume{Path: v.Path})
	}
	return volumes, nil
}

func mapVolume(v engine.Volume, ids *os.File) (*os.File, error) {
	if v.Clone == nil {
		return mapDirectory(v.Dir, ids, wire.VolumeAttributes, engine.Volumes)
	}
	mount, err := v.Clone()
	if err != nil {
		return nil, err
	}
	return mount, mapMount(mount, ids, wire.VolumeAttributes, engine.Volumes)
}
