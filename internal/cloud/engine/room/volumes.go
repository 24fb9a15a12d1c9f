//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// mountVolumes makes a mount of each volume for the sandbox whose first process is pid.
// The server makes them because only it may enter their directories, and because files
// that belong to low ids are to belong to the same ids of the sandbox. Where a sandbox
// has a single id there is nothing to map: its first process finds the directories.
func (s *Sandbox) mountVolumes(pid int) (volumes []wire.Volume, mounts []*os.File, err error) {
	if len(s.options.Volumes) == 0 {
		return nil, nil, nil
	}
	if !s.room.ranged() {
		for _, v := range s.options.Volumes {
			if v.Clone != nil {
				return nil, nil, fmt.Errorf("%w: it has a file system of its own, and sandboxes have a single id here", engine.ErrNoVolumes)
			}
			volumes = append(volumes, wire.Volume{Dir: v.Dir, Path: v.Path})
		}
		return volumes, nil, nil
	}
	ids, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return nil, nil, err
	}
	defer ids.Close()
	for _, v := range s.options.Volumes {
		mount, err := mapVolume(v, ids)
		if err != nil {
			wire.CloseAll(mounts)
			return nil, nil, fmt.Errorf("the volume for %s: %w", v.Path, err)
		}
		mounts, volumes = append(mounts, mount), append(volumes, wire.Volume{Path: v.Path})
	}
	return volumes, mounts, nil
}

func mapVolume(v engine.Volume, ids *os.File) (*os.File, error) {
	clone := v.Clone
	if clone == nil {
		clone = func() (*os.File, error) { return cloneMount(v.Dir) }
	}
	mount, err := clone()
	if err != nil {
		return nil, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | wire.VolumeAttributes, Userns_fd: uint64(ids.Fd())}
	if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: the file system of %s refuses to map ids (id-mapped mount: %w): use a directory on another one, such as ext4, xfs or btrfs", engine.ErrNoVolumes, v.Dir, err), mount.Close())
	}
	return mount, nil
}

// cloneMount returns a mount of a directory that is attached nowhere.
func cloneMount(dir string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("clone the mount of %s: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}
