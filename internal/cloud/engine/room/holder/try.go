//go:build linux

package holder

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canReadMemory reports whether this process may copy memory of other processes with
// process_vm_readv. The seccomp profile of Docker 20.10 allows process_vm_readv only with
// SYS_PTRACE.
func canReadMemory() bool {
	c := &caller{thread: os.Getpid()}
	here := []byte{1}
	return c.readDirectly(uint64(uintptr(unsafe.Pointer(&here[0]))), make([]byte, 1)) == nil
}

// canDuplicate reports whether this process may duplicate descriptors of other processes. Docker's
// seccomp profile allows this duplication only with SYS_PTRACE.
func canDuplicate() bool {
	process, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(process) }()
	duplicate, err := unix.PidfdGetfd(process, process, 0)
	if err != nil {
		return false
	}
	return unix.Close(duplicate) == nil
}

// TryOpenat2 opens the root directory with openat2, in the same way as the holder opens the files
// below a directory. If a seccomp profile refuses the call, the error is the same as for a
// directory that this process is not permitted to open.
func TryOpenat2() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	return unix.Close(fd)
}
