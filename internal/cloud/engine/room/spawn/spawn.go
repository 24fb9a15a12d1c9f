//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
)

// Process is a re-executed child of this process.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when it has ended and was reaped
}

// Kill ends the process and returns when it was reaped.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // fails only if it has ended
	<-p.Done
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

// Start starts the binary with fd3 as its control socket. The thread that starts it
// stays locked and alive until the child has ended, because the parent-death signal
// follows the thread, not the process.
func Start(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr, at Placement) (*Process, error) {
	cmd := Command(binary, fd3, stderr, attr)
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := at.start(cmd)
		if !errors.Is(err, ErrAway) { // otherwise the thread ends with this goroutine
			defer runtime.UnlockOSThread()
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the control socket says how it ended
		close(p.Done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}
