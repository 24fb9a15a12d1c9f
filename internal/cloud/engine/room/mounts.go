//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// strangerID owns on the host what root of a sandbox makes in a directory of the host: an id
// that no process has, so that nobody gains anything by a program with its rights.
const strangerID = spawn.IDBase + spawn.SlotSize - 2

// mountHost makes a mount of each directory of the host for the sandbox. Where sandboxes have
// a single id, its first process makes them, and is given the directories to compare.
func (s *Sandbox) mountHost() (shown []wire.Volume, files []*os.File, err error) {
	if len(s.options.Mounts) > 0 && !s.room.ids.entersDirectories() {
		return nil, nil, fmt.Errorf("%w: %s", engine.ErrNoMounts, noDirectories)
	}
	defer func() {
		if err != nil {
			wire.CloseAll(files)
			files = nil
		}
	}()
	for _, m := range s.options.Mounts {
		dir, err := openMount(m)
		if err != nil {
			return nil, files, err
		}
		v := wire.Volume{Path: m.Path, ReadOnly: !m.Writable}
		if s.room.ranged() {
			mount, err := s.mapHost(dir, v)
			dir.Close()
			if err != nil {
				return nil, files, fmt.Errorf("the directory %s for %s: %w", m.Dir, m.Path, err)
			}
			shown, files = append(shown, v), append(files, mount)
			continue
		}
		v.Opened = true
		if v.Dir, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())); err != nil { // where it is by now
			dir.Close()
			return nil, files, err
		}
		shown, files = append(shown, v), append(files, dir)
	}
	return shown, files, nil
}

// openMount opens the directory of a mount, or again what was opened.
func openMount(m engine.Mount) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if m.File == nil {
		fd, err := unix.Open(m.Dir, flags|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open the directory %s: %w", m.Dir, err)
		}
		return os.NewFile(uintptr(fd), m.Dir), nil
	}
	fd, err := unix.Openat(int(m.File.Fd()), ".", flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory %s: %w", m.Dir, err)
	}
	return os.NewFile(uintptr(fd), m.Dir), nil
}

// mapHost makes a mount of a directory whose owner is the user of the sandbox. Everybody else
// is nobody there, root of the host above all: what a sandbox makes must not be root's.
func (s *Sandbox) mapHost(dir *os.File, v wire.Volume) (*os.File, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return nil, err
	}
	if !v.ReadOnly && (stat.Uid == 0 || stat.Gid == 0) {
		return nil, fmt.Errorf("%w: it belongs to root, and what a sandbox makes there would, too: show it read-only, or give it to an ordinary user and group (chown)", engine.ErrNoMounts)
	}
	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("clone its mount: %w", err)
	}
	mount := os.NewFile(uintptr(fd), dir.Name())
	first := spawn.IDBase + spawn.FirstID(s.slot)
	ids, err := newMapping(s.room.binary, ownedBy(int(stat.Uid), first), ownedBy(int(stat.Gid), first))
	if err != nil {
		mount.Close()
		return nil, fmt.Errorf("map its owner: %w", err)
	}
	defer ids.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | v.Attributes(), Userns_fd: uint64(ids.Fd())}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if err != nil && v.ReadOnly { // then what is open to all can be read
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: v.Attributes()})
	} else if err != nil {
		err = fmt.Errorf("%w: its file system refuses to map ids (id-mapped mount: %w): show it read-only", engine.ErrNoMounts, err)
	}
	if err != nil {
		return nil, errors.Join(err, mount.Close())
	}
	return mount, nil
}

// ownedBy maps an id on the disk to that of the user of a sandbox with the ids from first on,
// and that of a stranger to its root.
func ownedBy(owner, first int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: owner, HostID: first + protocol.UserID, Size: 1}, {ContainerID: strangerID, HostID: first, Size: 1}}
}
