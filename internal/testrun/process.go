//go:build linux

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// Once a command is cancelled, what it started has this long to clean up.
const graceOfCancelled = 5 * time.Second

// inGroup starts a command in a process group of its own, and ends all of the group
// when its context ends.
func inGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		group := -command.Process.Pid
		time.AfterFunc(graceOfCancelled, func() { syscall.Kill(group, syscall.SIGKILL) }) //nolint:errcheck // it may be gone
		return syscall.Kill(group, syscall.SIGINT)
	}
	// What is left of it may hold its output for this long.
	command.WaitDelay = time.Minute
}

// processorTime is what a command took, with the processes that it waited for.
func processorTime(command *exec.Cmd) time.Duration {
	if command.ProcessState == nil {
		return 0
	}
	return command.ProcessState.UserTime() + command.ProcessState.SystemTime()
}
