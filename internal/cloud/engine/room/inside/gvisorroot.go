//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Paths for the process that runs gVisor. Nothing in gVisor's sandbox can reach these paths,
// because the root of the sandbox is runnerRoot.
const (
	runnerRoot    = "/root"    // root of gVisor's sandbox
	runnerProgram = "/program" // program that gVisor starts in that root
	runnerState   = "/gvisor"  // directory of runsc's own files
)

// openProgram returns the detached mount of the program for gVisor; nil without gVisor.
func openProgram(spec *wire.InitSpec, passed *wire.Files) (*os.File, error) {
	switch {
	case !spec.GVisor:
		return nil, nil
	case spec.Program == "":
		return passed.Take(wire.FileProgram)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, spec.Program, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("clone the mount of %s: %w", spec.Program, err)
	}
	return os.NewFile(uintptr(fd), spec.Program), nil
}

// prepareRunner makes the staging directory the root of this process. This root contains the root
// that construct made, and the other parts that runsc needs: /proc, the devices, and a file system
// for runsc's own files, which do not belong to the sandbox.
func prepareRunner(spec *wire.InitSpec, program *os.File) error {
	defer program.Close()
	for _, dir := range []string{"proc", "dev", "tmp", runnerState[1:]} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(runnerProgram[1:], nil, 0o555); err != nil {
		return err
	}
	if err := unix.MoveMount(int(program.Fd()), "", unix.AT_FDCWD, runnerProgram[1:], unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show the program: %w", err)
	}
	const closed = unix.MS_NOSUID | unix.MS_NODEV
	err := errors.Join(
		unix.Mount("proc", "proc", "proc", closed|unix.MS_NOEXEC, ""),
		unix.Mount("root/dev", "dev", "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Mount("tmpfs", runnerState[1:], "tmpfs", closed, "mode=0700"),
	)
	if err != nil {
		return fmt.Errorf("mount the directories of gVisor: %w", err)
	}
	if spec.Memory > 0 { // runsc passes the content of this file to its sandbox
		if err := os.WriteFile("meminfo", memoryText(uint64(spec.Memory), cgroup.Memory{}), 0o444); err != nil {
			return err
		}
		if err := unix.Mount("meminfo", "proc/meminfo", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show /proc/meminfo: %w", err)
		}
	}
	if err := enterAt("."); err != nil {
		return err
	}
	if err := leaveOldRoot(); err != nil {
		return err
	}
	if len(spec.Authority) == 0 {
		return nil
	}
	if err := in(runnerRoot, func() error { return showAuthority(spec.Authority, spec.Trees) }); err != nil {
		return fmt.Errorf("show the certificate authority: %w", err)
	}
	return nil
}

// in calls do while dir is the root directory of this process.
func in(dir string, do func() error) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	if err := errors.Join(os.Chdir(dir), unix.Chroot(".")); err != nil {
		return fmt.Errorf("enter %s: %w", dir, err)
	}
	return errors.Join(do(), root.Chdir(), unix.Chroot("."))
}

// executeRunner executes the second stage with all capabilities that this process has in its own
// namespaces. The capabilities are needed because runsc makes further namespaces. None of the
// sandbox's code runs outside of gVisor.
func executeRunner(c *wire.Conn) error {
	unix.Umask(0o022)
	if err := c.Export(hello.ControlFD); err != nil {
		return err
	}
	return execBinary()
}
