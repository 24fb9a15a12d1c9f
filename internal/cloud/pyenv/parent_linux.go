package pyenv

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// endWithParent makes the command end with this process, however this process ends. When the
// command's context is cancelled, the processes that the command has started also end, because an
// unfinished environment is useless.
func endWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	command.Cancel = func() error {
		err := syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
