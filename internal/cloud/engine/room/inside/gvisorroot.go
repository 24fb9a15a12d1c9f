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

// start opens the detached mount of the program for gVisor. gVisor has a clock of its own.
func (v *gvisor) start(spec *wire.InitSpec, passed *wire.Files) (err error) {
	if spec.Program == "" {
		v.program, err = passed.Take(wire.FileProgram)
		return err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, spec.Program, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone the mount of %s: %w", spec.Program, err)
	}
	v.program = os.NewFile(uintptr(fd), spec.Program)
	return nil
}

// showKernel makes nothing, because gVisor has its own /proc and /sys.
func (*gvisor) showKernel(*built, *wire.InitSpec, []*os.File) error { return nil }

// enter makes the staging directory the root of this process. This root contains the root
// that construct made, and the other parts that runsc needs: /proc, the devices, and a file system
// for runsc's own files, which do not belong to the sandbox.
func (v *gvisor) enter(spec *wire.InitSpec) error {
	defer v.program.Close()
	for _, dir := range []string{"proc", "dev", "tmp", runnerState[1:]} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(runnerProgram[1:], nil, 0o555); err != nil {
		return err
	}
	if err := unix.MoveMount(int(v.program.Fd()), "", unix.AT_FDCWD, runnerProgram[1:], unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
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

// execute executes the second stage with all capabilities that this process has in its own
// namespaces. The capabilities are needed because runsc makes further namespaces. None of the
// sandbox's code runs outside of gVisor.
func (*gvisor) execute(c *wire.Conn, _ *wire.InitSpec) error {
	unix.Umask(0o022)
	if err := c.Export(hello.ControlFD); err != nil {
		return err
	}
	return execBinary()
}
