//go:build unix

package cli

import (
	"os"
	"syscall"
)

// become replaces this process by a program, and returns only if that fails.
func become(program string, args, env []string) error {
	return &os.PathError{Op: "exec", Path: program, Err: syscall.Exec(program, append([]string{program}, args...), env)}
}

// interrupt tells a process to end.
func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
