//go:build linux

package spawn

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
)

// StartLater forks this process, which must have the binary as [hello.BinaryFD]. As soon as a
// message arrives on fd3, the child drops the message and starts the binary, with fd3 as its control
// socket. If the other end of fd3 is closed for writing first, the child ends. So a child that is
// not needed costs a fork, but not the start of a program.
//
// The child leads a session of its own. It keeps only these two files and standard input open, and
// standard input, which must be /dev/null, is its output too. StartLater does not wait for its end.
func StartLater(fd3 *os.File) error {
	name, err := unix.BytePtrFromString(hello.Argv0)
	if err != nil {
		return err
	}
	c := laterChild{control: fd3.Fd(), argv: [2]*byte{name}}
	if err := unix.SetNonblock(int(c.control), false); err != nil { // the child must wait in a read
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := ^uint64(0)
	if errno := exchangeMask(&all, &c.mask); errno != 0 {
		return os.NewSyscallError("rt_sigprocmask", errno)
	}
	_, _, errno := c.fork()
	restored := exchangeMask(&c.mask, nil)
	runtime.KeepAlive(fd3)
	if errno != 0 {
		return os.NewSyscallError("clone", errno)
	}
	if restored != 0 {
		return os.NewSyscallError("rt_sigprocmask", restored)
	}
	return nil
}

// laterChild has all that the child of StartLater needs. The child consists of a copy of one thread,
// so it must neither allocate nor call into Go's runtime, and no signal may call a handler of Go.
type laterChild struct {
	control uintptr
	message [1]byte // the message that starts the binary, cut off
	mask    uint64  // the signals that the thread blocks outside of fork
	path    [1]byte // empty: the binary is found by its descriptor
	argv    [2]*byte
	envp    [1]*byte
}

// fork makes the child. It returns in this process only.
//
//go:norace
//go:nosplit
func (c *laterChild) fork() (pid, _ uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		c.run()
	}
	return pid, 0, errno
}

// run is the child.
//
//go:norace
//go:nosplit
func (c *laterChild) run() {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	_, _, failed := syscall.RawSyscall(unix.SYS_DUP3, 0, 1, 0)
	if failed == 0 {
		_, _, failed = syscall.RawSyscall(unix.SYS_DUP3, 0, 2, 0)
	}
	if failed == 0 && c.control != hello.ControlFD {
		_, _, failed = syscall.RawSyscall(unix.SYS_DUP3, c.control, hello.ControlFD, 0)
	}
	if failed == 0 {
		_, _, failed = syscall.RawSyscall(unix.SYS_FCNTL, hello.BinaryFD, unix.F_SETFD, 0)
	}
	// The ends of other connections must be noticed while the child waits.
	if _, _, refused := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, hello.BinaryFD+1, uintptr(^uint32(0)), 0); refused != 0 {
		for fd := uintptr(hello.BinaryFD + 1); fd < maxFiles; fd++ {
			_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	if failed == 0 {
		n, _, _ := syscall.RawSyscall(unix.SYS_READ, hello.ControlFD, uintptr(unsafe.Pointer(&c.message)), unsafe.Sizeof(c.message))
		if n == 1 {
			_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.mask)), 0, unsafe.Sizeof(c.mask), 0, 0)
			_, _, _ = syscall.RawSyscall6(unix.SYS_EXECVEAT, hello.BinaryFD, uintptr(unsafe.Pointer(&c.path)),
				uintptr(unsafe.Pointer(&c.argv)), uintptr(unsafe.Pointer(&c.envp)), unix.AT_EMPTY_PATH, 0)
		}
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// maxFiles is larger than the number of any descriptor of a process of the room.
const maxFiles = 4096

// exchangeMask sets the signals that this thread blocks to next, and stores the earlier ones in
// present. Each of the two pointers may be nil.
func exchangeMask(next, present *uint64) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(present)),
		unsafe.Sizeof(uint64(0)), 0, 0)
	return errno
}
