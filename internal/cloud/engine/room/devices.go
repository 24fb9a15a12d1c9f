//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deviceNames are the device nodes of a sandbox: those that every program relies on
// and that give access to nothing else.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// deviceNumbers are the kernel's numbers of deviceNames, major and minor.
var deviceNumbers = [][2]uint32{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}}

// makeDevices makes a sandbox's own device nodes, in a file system that the server
// makes, because the kernel refuses devices in one that is made inside. If nodes
// were shared, sandboxes and the host could signal to each other, or block each
// other, by locks and watches on them. makeDevices returns nil if this process may
// not make nodes.
func makeDevices() (*os.File, error) {
	fsfd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer closeFD(fsfd)
	err = errors.Join(
		unix.FsconfigSetString(fsfd, "mode", "0755"), unix.FsconfigSetString(fsfd, "nr_inodes", fmt.Sprint(1+len(deviceNames))),
		unix.FsconfigCreate(fsfd),
	)
	if err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	mount := os.NewFile(uintptr(fd), "devices")
	for i, name := range deviceNames {
		err := unix.Mknodat(fd, name, unix.S_IFCHR, int(unix.Mkdev(deviceNumbers[i][0], deviceNumbers[i][1])))
		if err == nil { // whatever the umask is
			err = unix.Fchmodat(fd, name, 0o666, 0)
		}
		if errors.Is(err, unix.EPERM) {
			return nil, mount.Close()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make /dev/%s: %w", name, err), mount.Close())
		}
	}
	return mount, nil
}

// hostDevices is the directory of the device nodes on the host.
const hostDevices = "/dev"

// openNodes opens each node in dir as a separate mount that is attached nowhere.
func openNodes(dir string) (nodes []*os.File, err error) {
	for _, name := range deviceNames {
		path := filepath.Join(dir, name)
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			closeAll(nodes)
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		nodes = append(nodes, os.NewFile(uintptr(fd), path))
	}
	return nodes, nil
}

// openMade opens the nodes that the server made. Their file system is left behind
// with the staging directory, which is this process's working directory.
func openMade(made *os.File) ([]*os.File, error) {
	defer made.Close()
	const dir = "devices"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.MoveMount(int(made.Fd()), "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("attach the devices: %w", err)
	}
	return openNodes(dir)
}

// maxTerminals is how many pseudoterminals a sandbox may have.
const maxTerminals = 256

// mountDevices mounts the nodes, and makes the sandbox's own terminals.
func mountDevices(nodes []*os.File, ranged bool) error {
	for i, name := range deviceNames {
		path := "root/dev/" + name
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return err
		}
		if err := unix.MoveMount(int(nodes[i].Fd()), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("show /dev/%s: %w", name, err)
		}
	}
	// The kernel has a few thousand terminals for the whole machine.
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
	if ranged {
		options += ",gid=5" // the group tty; with a single id there is no such group
	}
	if err := unix.Mount("devpts", "root/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	return nil
}
