//go:build linux

package room

import (
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// mountHost opens the directories of the host that the sandbox mounts, and appends them to volumes.
// If sandboxes have several ids, it adds a mount of each directory to files. If they have a single
// id, the first process of the sandbox makes the mounts. In this case mountHost adds the opened
// directories to files, and the first process compares them with the directories that it finds at
// their paths.
func (s *Sandbox) mountHost(volumes []wire.Volume, files *wire.Files) ([]wire.Volume, error) {
	for _, m := range s.options.Mounts {
		dir, err := mounts.OpenDir(m)
		if err != nil {
			return nil, err
		}
		name := wire.FileVolume.Numbered(len(volumes))
		v := wire.Volume{Path: m.Path, ReadOnly: !m.Writable}
		if s.room.ranged() {
			first := s.room.ids.firstOf(s.slot)
			mount, err := mounts.Show(dir, m, s.room.keeper.binary, mounts.Owner{User: first + protocol.UserID, Group: first + protocol.UserID, Root: first, Powerless: true})
			dir.Close()
			if err != nil {
				return nil, err
			}
			files.Add(name, mount)
			volumes = append(volumes, v)
			continue
		}
		v.Opened = true
		if v.Dir, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())); err != nil { // its current path
			dir.Close()
			return nil, err
		}
		files.Add(name, dir)
		volumes = append(volumes, v)
	}
	return volumes, nil
}
