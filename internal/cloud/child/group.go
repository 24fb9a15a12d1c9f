//go:build linux

package child

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Group is a command started with [StartGroup], together with everything it started
// that stayed in its process group. It is safe for concurrent use.
type Group struct {
	cmd    *exec.Cmd
	leader *os.File // its pidfd; nil where the kernel does not support them

	mu     sync.Mutex
	reaped bool // the leader was reaped: its pid may belong to another process
	closed bool
}

// StartGroup is [Start] for a command that leads a session of its own. The caller
// must call Wait, as after Start, and then Close.
func StartGroup(cmd *exec.Cmd) (*Group, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	fd := -1
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.PidFD = true, &fd
	if err := Start(cmd); err != nil {
		return nil, err
	}
	g := &Group{cmd: cmd}
	if fd >= 0 {
		// Non-blocking, so that waiting occupies a goroutine and not a thread.
		_ = unix.SetNonblock(fd, true)
		g.leader = os.NewFile(uintptr(fd), "pidfd")
	}
	return g, nil
}

// PID returns the number of the leader, which is also that of the group.
func (g *Group) PID() int { return g.cmd.Process.Pid }

// State returns how the leader ended, once Wait has returned.
func (g *Group) State() *os.ProcessState { return g.cmd.ProcessState }

// Wait waits for the leader and returns what [Wait] does.
func (g *Group) Wait() error {
	g.await()
	// A signal must not find the pid given to another process in between.
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reaped = true
	return Wait(g.cmd)
}

// await returns when the leader has ended, and leaves it unreaped.
func (g *Group) await() {
	if g.leader != nil {
		if conn, err := g.leader.SyscallConn(); err == nil {
			err = conn.Read(func(fd uintptr) bool { return ended(unix.P_PIDFD, int(fd), unix.WNOHANG) })
			if err == nil {
				return
			}
		}
	}
	ended(unix.P_PID, g.PID(), 0)
}

// ended reports whether a child has ended, or cannot be asked about.
func ended(idType, id, options int) bool {
	var info unix.Siginfo
	err := ignoringEINTR(func() error {
		return unix.Waitid(idType, id, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
	})
	return err != nil || pidOf(&info) != 0
}

// Signal sends sig to the whole group, even when its leader has gone. It returns
// [unix.ESRCH] when nothing of the group is left, and never reaches a group that was
// given the same number later.
func (g *Group) Signal(sig unix.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return unix.ESRCH
	}
	if err := g.signalByDescriptor(sig); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if g.reaped && unix.Kill(g.PID(), 0) == nil {
		return unix.ESRCH // the number is another process's: it would not be reused while our group lives
	}
	return unix.Kill(-g.PID(), sig)
}

// signalByDescriptor needs a pidfd and Linux 6.9. The descriptor stands for the group
// itself, not for its number.
func (g *Group) signalByDescriptor(sig unix.Signal) error {
	if g.leader == nil {
		return errors.ErrUnsupported
	}
	conn, err := g.leader.SyscallConn()
	if err != nil {
		return errors.ErrUnsupported
	}
	failure := conn.Control(func(fd uintptr) {
		err = unix.PidfdSendSignal(int(fd), sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	})
	if failure != nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return errors.ErrUnsupported
	}
	return err
}

// Close releases what Signal needs: from then on Signal reaches nothing. It is
// idempotent.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	if g.leader == nil {
		return nil
	}
	return g.leader.Close()
}
