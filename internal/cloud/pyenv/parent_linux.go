package pyenv

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// endWithParent makes the command end with this process, however that ends. A
// cancelled context then also ends the processes that the command has started:
// an unfinished environment is useless.
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
