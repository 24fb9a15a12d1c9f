//go:build !linux

package pyenv

import "os/exec"

// endWithParent does nothing on this system. The command may outlive this process. It inherits the
// lock on the lock file, so other processes wait until the command has ended.
func endWithParent(*exec.Cmd) {}
