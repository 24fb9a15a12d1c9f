//go:build !linux

package pyenv

import "os/exec"

// endWithParent does nothing here. The command inherits the lock, so other processes wait until
// the command has ended.
func endWithParent(*exec.Cmd) {}
