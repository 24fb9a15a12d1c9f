//go:build linux

package room

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// firstProcess is the first process of a sandbox, which becomes envd. The room starts it, waits for
// it, and reports on it.
type firstProcess struct {
	pidfd   *os.File           // nil before the process has started
	spawned chan spawned       // the room's answer to the request to start the sandbox
	told    chan error         // the room's answer to the request to name or to resize the sandbox
	died    chan struct{}      // closed when envd has ended; other processes may still run for a moment
	exited  chan struct{}      // closed when all processes of the sandbox are gone
	gone    func()             // closes the channel exited
	status  syscall.WaitStatus // the wait status of envd, valid after died is closed
	left    error              // the reason why the room could not end all processes of the sandbox
}

type spawned struct {
	pidfd *os.File
	err   error
}

// newFirstProcess returns a process that has not been requested yet.
func newFirstProcess() firstProcess {
	p := firstProcess{
		spawned: make(chan spawned, 1),
		told:    make(chan error, 1),
		died:    make(chan struct{}),
		exited:  make(chan struct{}),
	}
	p.gone = sync.OnceFunc(func() { close(p.exited) })
	return p
}

// pid returns the id of the process in this process's pid namespace.
func (p *firstProcess) pid() (int, error) { return pidOf(p.pidfd) }

// answer passes on the room's answer to a request to name or to resize the sandbox. It ignores an
// answer without a request.
func (p *firstProcess) answer(err error) {
	select {
	case p.told <- err:
	default: // the room was not asked
	}
}

// dies records the wait status of envd, unless it is already recorded. Only the goroutine that
// receives the room's messages calls dies.
func (p *firstProcess) dies(status int) {
	select {
	case <-p.died:
	default:
		p.status = syscall.WaitStatus(status)
		close(p.died)
	}
}

// exits records that all processes of the sandbox are gone, or that the room could not end some of
// them because of left. The goroutine that calls dies calls it, at most once.
func (p *firstProcess) exits(status int, left error) {
	p.left = left
	select {
	case p.spawned <- spawned{err: ErrRoomEnded}: // if the request was answered there is no waiting call
	default:
	}
	p.dies(status)
	p.gone()
}

// pidOf returns the id, in this process's pid namespace, of the process that a pidfd refers to. If
// the pidfd has been closed, pidOf returns an error.
func pidOf(pidfd *os.File) (int, error) {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return 0, err
	}
	var data []byte
	closed := raw.Control(func(fd uintptr) { data, err = os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)) })
	if err := cmp.Or(closed, err); err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			if pid, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil && pid > 0 {
				return pid, nil
			}
		}
	}
	return 0, wire.ErrPeerEnded
}
