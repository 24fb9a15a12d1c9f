package mounts

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

// StrangerID owns the files that root of a sandbox creates in a directory of the host. It is an id
// of the host. No process has this id, so a program that runs with the rights of this id is of no
// use to anyone.
const StrangerID = spawn.IDBase + spawn.SlotSize - 2

// Owner maps the rights over a directory to ids of a sandbox. All ids in an Owner are numbers on
// the host.
type Owner struct {
	User, Group int // ids that receive the rights of the directory's owner and of its group
	Root        int // id of root in the sandbox
	// Powerless means that no id of the sandbox has capabilities on the host. A directory may be
	// mounted without mapping ids only if Powerless is set and the mount is read-only. In such a
	// mount, the sandbox can read only the files that every user can read.
	Powerless bool
}

// OpenDir opens the directory of a mount. If the mount already has an open file for the directory,
// OpenDir opens the directory a second time.
func OpenDir(m engine.Mount) (*os.File, error) {
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

// Show creates a mount of dir, and does not attach the mount yet. dir is the open directory of m.
// The mount keeps the promises that mounts have with every engine. Users of the host who are not in
// o have no equivalent in the mount. This applies especially to root, because a sandbox must not
// create files of root. Set-user-ID bits and device nodes have no effect. File systems that are
// mounted below dir are left out. binary may be any program, because it is not run. If a promise
// cannot be kept, the error is an [engine.LackError] for [engine.Mounts].
func Show(dir *os.File, m engine.Mount, binary *os.File, o Owner) (*os.File, error) {
	mount, err := show(dir, m.Writable, binary, o)
	if err != nil {
		return nil, fmt.Errorf("the directory %s for %s: %w", m.Dir, m.Path, err)
	}
	return mount, nil
}

func show(dir *os.File, writable bool, binary *os.File, o Owner) (*os.File, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return nil, err
	}
	if writable && (stat.Uid == 0 || stat.Gid == 0) {
		return nil, engine.Lackf(engine.Mounts, "it belongs to root, and what a sandbox makes there would, too: show it read-only, or give it to an ordinary user and group (chown)")
	}
	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, engine.Lackf(engine.Mounts, "its mount cannot be cloned: %w", err)
	}
	mount := os.NewFile(uintptr(fd), dir.Name())
	ids, err := spawn.UserNamespace(binary, ownedBy(int(stat.Uid), o.User, o.Root), ownedBy(int(stat.Gid), o.Group, o.Root))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map its owner: %w", err), mount.Close())
	}
	defer ids.Close()
	// apart keeps out later mounts of the host below the directory, which a shared mount would
	// receive.
	const apart = unix.MS_PRIVATE
	attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if !writable {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | attributes, Propagation: apart, Userns_fd: uint64(ids.Fd())}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if err != nil && !writable && o.Powerless { // without a mapping, only files that every user can read are readable
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attributes, Propagation: apart})
	} else if err != nil {
		advice := "use a directory on another one, such as ext4, xfs or btrfs"
		if o.Powerless {
			advice = "show it read-only"
		}
		err = engine.Lackf(engine.Mounts, "its file system refuses to map ids (id-mapped mount: %w): %s", err, advice)
	}
	if err != nil {
		return nil, errors.Join(err, mount.Close())
	}
	return mount, nil
}

// ownedBy returns the mapping of ids for a mount, from ids on the disk to ids of the sandbox. It maps
// owner to id. It also maps StrangerID to root, unless id is root. If owner is StrangerID, because root
// of another sandbox created the directory, it maps StrangerID only to id.
func ownedBy(owner, id, root int) []syscall.SysProcIDMap {
	owned := []syscall.SysProcIDMap{{ContainerID: owner, HostID: id, Size: 1}}
	if id == root || owner == StrangerID {
		return owned
	}
	return append(owned, syscall.SysProcIDMap{ContainerID: StrangerID, HostID: root, Size: 1})
}
