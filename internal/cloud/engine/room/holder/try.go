//go:build linux

package holder

import (
	"os"

	"golang.org/x/sys/unix"
)

// Try makes the calls by which a holder opens files for others. An error has the name of the
// call that is missing or refused: chmod, chown and touch would fail in sandboxes.
func Try() error {
	if err := TryOpenat2(); err != nil {
		return err
	}
	process, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(process) }()
	duplicate, err := unix.PidfdGetfd(process, process, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_getfd", err)
	}
	return unix.Close(duplicate)
}

// TryOpenat2 opens the root directory in the same way as files below a directory. Seccomp profiles
// refuse that with the error of a directory that is closed to this process.
func TryOpenat2() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	return unix.Close(fd)
}
