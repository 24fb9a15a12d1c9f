//go:build linux

package inside

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// hostDevices is the directory of the device nodes on the host.
const hostDevices = "/dev"

// openNodes opens each node in dir as a separate detached mount.
func openNodes(dir string) (nodes []*os.File, err error) {
	for _, name := range guest.DeviceNames {
		path := filepath.Join(dir, name)
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			wire.CloseAll(nodes)
			return nil, fmt.Errorf("open %s: %w", path, os.NewSyscallError("open_tree", err))
		}
		nodes = append(nodes, os.NewFile(uintptr(fd), path))
	}
	return nodes, nil
}

// openMade opens the nodes that the server made. It attaches their file system below the staging
// directory, which is this process's working directory. The file system is left behind together
// with that directory.
func openMade(made *os.File) ([]*os.File, error) {
	defer made.Close()
	const dir = "devices"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.MoveMount(int(made.Fd()), "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("attach the devices: %w", os.NewSyscallError("move_mount", err))
	}
	return openNodes(dir)
}

// mountDevices mounts the nodes, and makes the sandbox's own terminals. If nodes is empty, it mounts
// the nodes of the root that is replaced.
func mountDevices(nodes []*os.File, ranged bool) error {
	for i, name := range guest.DeviceNames {
		path := "root/dev/" + name
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return err
		}
		var err error
		if nodes == nil {
			err = os.NewSyscallError("mount", unix.Mount("/dev/"+name, path, "", unix.MS_BIND, ""))
		} else {
			err = os.NewSyscallError("move_mount", unix.MoveMount(int(nodes[i].Fd()), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH))
		}
		if err != nil {
			return fmt.Errorf("show /dev/%s: %w", name, err)
		}
	}
	// The kernel has a few thousand terminals for the whole machine.
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", guest.MaxTerminals)
	if ranged {
		options += ",gid=5" // the group tty; with a single id there is no such group
	}
	if err := unix.Mount("devpts", "root/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	return nil
}
