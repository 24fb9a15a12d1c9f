//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// process is a re-executed child of this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was reaped
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

// command returns the command that re-executes binary with fd3 as its control
// socket.
func command(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr) *exec.Cmd {
	return &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", wire.BinaryFD),
		Args:        []string{wire.Argv0},
		Env:         []string{}, // nil would be our environment
		Dir:         "/",
		Stderr:      stderr,
		ExtraFiles:  []*os.File{fd3, binary},
		SysProcAttr: attr,
	}
}

// start starts the binary with fd3 as its control socket. The thread that starts it
// stays locked and alive until the child has ended, because the parent-death signal
// follows the thread, not the process.
func start(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr, at birthplace) (*process, error) {
	cmd := command(binary, fd3, stderr, attr)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := at.start(cmd)
		if !errors.Is(err, errAway) { // otherwise the thread ends with this goroutine
			defer runtime.UnlockOSThread()
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the control socket says how it ended
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}
