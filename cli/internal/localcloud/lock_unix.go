//go:build unix

package localcloud

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile locks file for this process until the process ends or closes it. It returns false if
// another process holds the lock. It uses a record lock, because a process can find the holder of
// such a lock without taking the lock.
func lockFile(file *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// lockHolder returns the ID of the process that holds the lock on file. It returns 0 if no process
// does, and the constant elsewhere if the holder is not visible to this process.
func lockHolder(file *os.File) (int, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, err
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	if lock.Pid <= 0 { // it is in another container, or on another machine
		return elsewhere, nil
	}
	return int(lock.Pid), nil
}

// ownSession returns attributes that start a process in a new session, so that it outlives the
// terminal from which it was started.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// end sends a process a signal that asks it to end.
func end(process *os.Process) error { return process.Signal(syscall.SIGTERM) }
