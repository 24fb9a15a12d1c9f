//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// deviceNumbers are the kernel's major and minor numbers of the devices in deviceNames.
var deviceNumbers = [][2]uint32{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}}

// makeDevices makes a file system with a sandbox's own device nodes. The server makes it, because the
// kernel refuses device nodes in a file system that a process in the sandbox makes. If nodes were
// shared, sandboxes and the host could use locks and watches on the nodes to signal to each other or
// to block each other. If this process is not permitted to make nodes, makeDevices returns nil.
func makeDevices() (*os.File, error) {
	fsfd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer wire.CloseFD(fsfd)
	err = errors.Join(
		unix.FsconfigSetString(fsfd, "mode", "0755"), unix.FsconfigSetString(fsfd, "nr_inodes", fmt.Sprint(1+len(guest.DeviceNames))),
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
	for i, name := range guest.DeviceNames {
		err := unix.Mknodat(fd, name, unix.S_IFCHR, int(unix.Mkdev(deviceNumbers[i][0], deviceNumbers[i][1])))
		if err == nil { // independently of the umask
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
