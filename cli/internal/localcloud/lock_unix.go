//go:build unix

package localcloud

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile locks file for this process until the process ends or closes it. It
// returns false if another process holds the lock. It uses a record lock because
// the system can tell which process holds it, without taking it.
func lockFile(file *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// lockHolder returns the process that holds the lock on file. It returns 0 if
// there is none, or elsewhere if the holder is invisible to this process.
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

// ownSession lets a process outlive the terminal that it was started from.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// end asks a process to end.
func end(process *os.Process) error { return process.Signal(syscall.SIGTERM) }
