//go:build linux

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// graceOfCancelled is the time that the processes of a cancelled command may take to clean up.
const graceOfCancelled = 5 * time.Second

// inGroup prepares a command to start in its own process group. When the context of the command
// ends, the whole group is ended.
func inGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		group := -command.Process.Pid
		time.AfterFunc(graceOfCancelled, func() { syscall.Kill(group, syscall.SIGKILL) }) //nolint:errcheck // it may be gone
		return syscall.Kill(group, syscall.SIGINT)
	}
	// The rest of the group may hold its output for this long.
	command.WaitDelay = time.Minute
}

// processorTime returns the processor time of a command, and of the processes that
// it waited for.
func processorTime(command *exec.Cmd) time.Duration {
	if command.ProcessState == nil {
		return 0
	}
	return command.ProcessState.UserTime() + command.ProcessState.SystemTime()
}
