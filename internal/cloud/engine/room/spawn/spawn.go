//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
)

// Process is a re-executed child of this process.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when the process has ended and was reaped
}

// Kill kills the process and returns after the process was reaped.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // fails only if it has ended
	<-p.Done
}

// Status returns the exit status of the process, once Done is closed.
func (p *Process) Status() syscall.WaitStatus {
	status, _ := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// Command returns the command that re-executes binary with fd3 as its control
// socket.
func Command(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr) *exec.Cmd {
	return &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", hello.BinaryFD),
		Args:        []string{hello.Argv0},
		Env:         []string{}, // nil would be our environment
		Dir:         "/",
		Stderr:      stderr,
		ExtraFiles:  []*os.File{fd3, binary},
		SysProcAttr: attr,
	}
}

// Start starts the binary with fd3 as its control socket. If attr has a parent-death signal, the
// child gets that signal when this process ends.
func Start(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr, at Placement) (*Process, error) {
	cmd := Command(binary, fd3, stderr, attr)
	on := takeStarter()
	started := make(chan error)
	on.work <- func() {
		err := at.start(cmd)
		if errors.Is(err, ErrAway) {
			on.spoil()
		}
		started <- err
	}
	if err := <-started; err != nil {
		on.release()
		return nil, err
	}
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	go func() {
		awaitEnd(cmd.Process)
		_ = cmd.Wait() // the control socket says how it ended
		on.release()
		close(p.Done)
	}()
	return p, nil
}
