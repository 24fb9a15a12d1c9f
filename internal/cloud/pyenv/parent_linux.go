package pyenv

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// endWithParent makes the command end with this process, however that ends, and
// makes a cancelled context also end what the command has started: a half-made
// environment is of no use.
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
