//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// mapTrees makes a mount of each tree for the sandbox whose first process is pid. The server
// makes the mounts because a tree may be in a directory that only the server may enter. In the
// system's trees, files of a host id, including root, belong to the same id of the sandbox. In the
// requested trees, such as the Python environment, files of the host's root belong to the account
// user of the sandbox, so that both of the sandbox's users may change them.
func (s *Sandbox) mapTrees(pid int, paths []string) (trees []*os.File, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			wire.CloseAll(trees)
			trees = nil
		}
	}()
	system, err := openUserNamespace(pid)
	if err != nil {
		return nil, err
	}
	defer system.Close()
	for i, path := range paths {
		mapping := system
		if i >= s.room.trees.system {
			if mapping, err = s.room.trees.mappings.owned(s.room.keeper.binary, s.room.ids.firstOf(s.slot)+protocol.UserID); err != nil {
				return trees, fmt.Errorf("map the ids of %s: %w", path, err)
			}
		}
		tree, note, err := mapTree(path, mapping)
		if err != nil {
			return trees, err
		}
		trees = append(trees, tree)
		if note != "" {
			s.files.notes = append(s.files.notes, note)
		}
	}
	return trees, nil
}

// mapTree makes a mount of path that maps its ids, so that overlays above the mount are writable. If
// the file system refuses the mapping, the host's files belong to nobody inside the sandbox. The note
// then explains that the files cannot be changed.
func mapTree(path string, mapping *os.File) (tree *os.File, note string, err error) {
	tree, err = cloneTree(path)
	if err != nil {
		return nil, "", err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(mapping.Fd())}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		note = fmt.Sprintf("%s cannot be changed: id-mapped mount: %v", path, err)
	}
	return tree, note, nil
}

// cloneTree returns a detached mount of a tree, without the mounts that are on the tree.
func cloneTree(path string) (*os.File, error) { return cloneWith(path, 0) }

// openUserNamespace opens the user namespace of a process.
func openUserNamespace(pid int) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}

// mapDirectory makes a mount of dir. The mount maps the ids of the user namespace to the ids on the
// disk. The ids on the disk start at 0. If the file system does not support such a mount, the error
// is the LackError of the feature in lacking.
func mapDirectory(dir string, ids *os.File, attributes uint64, lacking engine.Feature) (*os.File, error) {
	mount, err := cloneMount(dir)
	if err != nil {
		return nil, err
	}
	return mount, mapMount(mount, ids, attributes, lacking)
}

// cloneMount is like cloneTree, for a directory that must not be a symbolic link.
func cloneMount(dir string) (*os.File, error) { return cloneWith(dir, unix.AT_SYMLINK_NOFOLLOW) }

func cloneWith(path string, flags uint) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	if err != nil {
		return nil, fmt.Errorf("clone the mount of %s: %w", path, os.NewSyscallError("open_tree", err))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// mapMount is like mapDirectory, but for a detached mount. After an error, it closes the mount.
func mapMount(mount, ids *os.File, attributes uint64, lacking engine.Feature) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | attributes, Userns_fd: uint64(ids.Fd())}
	if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return errors.Join(engine.Lackf(lacking, "the file system of %s refuses to map ids (id-mapped mount: %w): use a directory on another one, such as ext4, xfs or btrfs", mount.Name(), err), mount.Close())
	}
	return nil
}

// mappings are user namespaces without processes. Each namespace maps the host's root to one
// host id. The namespaces are kept, because slots are used again.
type mappings struct {
	mu   sync.Mutex
	byID map[int]*os.File
}

func (m *mappings) owned(binary *os.File, id int) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.byID[id]; f != nil {
		return f, nil
	}
	f, err := spawn.UserNamespace(binary, []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}, []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}})
	if err != nil {
		return nil, err
	}
	if m.byID == nil {
		m.byID = make(map[int]*os.File)
	}
	m.byID[id] = f
	return f, nil
}

func (m *mappings) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.byID {
		f.Close()
	}
	m.byID = nil
}
