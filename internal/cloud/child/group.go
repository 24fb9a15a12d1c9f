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

// Group is a command started with [StartGroup], together with all its descendants that stayed
// in its process group. It is safe for concurrent use.
type Group struct {
	cmd    *exec.Cmd
	leader *os.File // pidfd of the leader; nil where the kernel does not support pidfds

	mu     sync.Mutex
	reaped bool // the leader was reaped, so its pid may belong to another process
	closed bool
}

// StartGroup starts cmd like [Start], as the leader of a new session. The caller must call
// Wait, as after Start, and then Close.
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
		// A non-blocking descriptor makes waiting occupy a goroutine instead of a thread.
		_ = unix.SetNonblock(fd, true)
		g.leader = os.NewFile(uintptr(fd), "pidfd")
	}
	return g, nil
}

// PID returns the process id of the leader, which is also the id of the group.
func (g *Group) PID() int { return g.cmd.Process.Pid }

// State returns how the leader ended, once Wait has returned.
func (g *Group) State() *os.ProcessState { return g.cmd.ProcessState }

// Wait waits for the leader and returns the same errors as the function [Wait].
func (g *Group) Wait() error {
	g.await()
	// The lock keeps the pid from being given to another process before the signal is sent.
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reaped = true
	return Wait(g.cmd)
}

// await returns when the leader has ended. It does not reap the leader.
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

// ended reports whether a child has ended. It also returns true if the child cannot be queried.
func ended(idType, id, options int) bool {
	var info unix.Siginfo
	err := ignoringEINTR(func() error {
		return unix.Waitid(idType, id, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
	})
	return err != nil || pidOf(&info) != 0
}

// Signal sends sig to the whole group, even after its leader has ended. It returns [unix.ESRCH]
// when no process of the group is left. It never signals a later group that was given the same
// id.
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
		return unix.ESRCH // pid is now another process: it is not reused while a group has this id
	}
	return unix.Kill(-g.PID(), sig)
}

// signalByDescriptor signals the group through the pidfd of its leader. This needs Linux 6.9.
// A pidfd always refers to this group. A process id does not, because the kernel may reuse it.
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

// Close releases the resources that Signal needs. After Close, Signal reaches no process. Close is
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
