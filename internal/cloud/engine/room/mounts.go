//go:build linux

package room

import (
	"fmt"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// mountHost opens the directories of the host that the sandbox mounts. If sandboxes have several
// ids, it returns a mount of each directory. If they have a single id, the first process of the
// sandbox makes the mounts: mountHost returns the opened directories, and the first process
// compares them with those that it finds at their paths.
func (s *Sandbox) mountHost() (shown []wire.Volume, files []*os.File, err error) {
	defer func() {
		if err != nil {
			wire.CloseAll(files)
			files = nil
		}
	}()
	for _, m := range s.options.Mounts {
		dir, err := mounts.OpenDir(m)
		if err != nil {
			return nil, files, err
		}
		v := wire.Volume{Path: m.Path, ReadOnly: !m.Writable}
		if s.room.ranged() {
			first := spawn.IDBase + spawn.FirstID(s.slot)
			mount, err := mounts.Show(dir, m, s.room.binary, mounts.Owner{User: first + protocol.UserID, Group: first + protocol.UserID, Root: first, Powerless: true})
			dir.Close()
			if err != nil {
				return nil, files, err
			}
			shown, files = append(shown, v), append(files, mount)
			continue
		}
		v.Opened = true
		if v.Dir, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())); err != nil { // its current path
			dir.Close()
			return nil, files, err
		}
		shown, files = append(shown, v), append(files, dir)
	}
	return shown, files, nil
}
