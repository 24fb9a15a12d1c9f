//go:build linux

package agent

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// openTerminal opens a pseudo-terminal that belongs to user. Unlike the usual
// package for it, it keeps the controlling end non-blocking: closing it or a
// deadline ends a read.
func openTerminal(user *User, size *process.PTY_Size) (controller, tty *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	controller = os.NewFile(uintptr(fd), "/dev/ptmx")
	tty, err = openPeer(fd)
	if err == nil {
		if user.Credential != nil {
			// Programs that open their terminal by name need to own it.
			err = tty.Chown(int(user.UID), int(user.GID))
		}
		err = errors.Join(err, resizeTerminal(controller, size))
	}
	if err != nil {
		if tty != nil {
			tty.Close()
		}
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

// resizeTerminal sets what programs on a terminal learn as its size. A size that is
// not given stays.
func resizeTerminal(controller *os.File, size *process.PTY_Size) error {
	if size == nil {
		return nil
	}
	conn, err := controller.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{
			Row: uint16(min(size.GetRows(), math.MaxUint16)),
			Col: uint16(min(size.GetCols(), math.MaxUint16)),
		})
	})
	return errors.Join(err, failed)
}
