//go:build linux

package envd

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// openTerminal opens a pseudo-terminal. The terminal belongs to the user of the process.
func (l *launch) openTerminal() (controller, tty *os.File, err error) {
	controller, tty, err = l.terminal()
	if err != nil {
		return nil, nil, err
	}
	if l.user.Credential != nil {
		// Programs that open their terminal by name must own it.
		err = tty.Chown(int(l.user.UID), int(l.user.GID))
	}
	if err = errors.Join(err, resizeTerminal(controller, l.pty.GetSize())); err != nil {
		tty.Close()
		controller.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return controller, tty, nil
}

// resizeTerminal sets the size of a terminal. If size is nil, the current size stays.
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
