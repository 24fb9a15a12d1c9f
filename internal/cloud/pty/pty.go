//go:build linux

package pty

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Open opens a new pseudo-terminal. The caller must close both files. Unlike the usual package
// for terminals, Open makes the controlling end non-blocking, so that closing it, or a
// deadline, ends a read.
func Open() (controller, tty *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: /dev/ptmx: %w", err)
	}
	controller = os.NewFile(uintptr(fd), "/dev/ptmx")
	if tty, err = openPeer(fd); err != nil {
		controller.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return controller, tty, nil
}

func openPeer(fd int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock: %w", err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("number: %w", err)
	}
	return os.OpenFile("/dev/pts/"+strconv.FormatUint(uint64(number), 10), os.O_RDWR|unix.O_NOCTTY, 0)
}
