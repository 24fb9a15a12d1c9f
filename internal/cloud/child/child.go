//go:build linux

package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// badness makes the kernel choose a child before envd when the sandbox runs out of
// memory. It is the value that the service sets for its processes.
const badness = 100

// started is the only table in this process: children belong to a process, so nothing
// smaller could own it.
var started = table{processes: make(map[int]*os.Process), waited: make(chan struct{}, 1)}

type table struct {
	// mu is held from before the fork until the child is in processes, and while the
	// reaper decides whose child a zombie is.
	mu        sync.Mutex
	processes map[int]*os.Process
	waited    chan struct{} // a wait returned: look again
}

// Start starts cmd, as its own Start does, and keeps its exit status for [Wait]. The
// caller must call Wait once, without waiting for anything else first: a child that has
// ended and was not waited for hides the orphans behind it from [Reap].
func Start(cmd *exec.Cmd) error {
	started.mu.Lock()
	defer started.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	started.processes[cmd.Process.Pid] = cmd.Process
	preferAsVictim(cmd.Process.Pid)
	leaveRoom(cmd.Process.Pid)
	return nil
}

// Wait waits for a command that was started with [Start]. It returns the error of [exec.Cmd.Wait].
func Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	started.forget(cmd.Process)
	return err
}

// Adopt takes over a child that was not started here: an orphan that this
// process inherited and has not reaped. The caller must call [WaitAdopted] as it
// would [Wait].
func Adopt(pid int) (*os.Process, error) {
	started.mu.Lock()
	defer started.mu.Unlock()
	if started.processes[pid] != nil {
		return nil, fmt.Errorf("child: adopt process %d: it was started here", pid)
	}
	var info unix.Siginfo // set for a child that ended; for others the call reports whether they are ours
	err := ignoringEINTR(func() error {
		return unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	if err != nil {
		return nil, fmt.Errorf("child: adopt process %d: %w", pid, err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("child: adopt process %d: %w", pid, err)
	}
	started.processes[pid] = p
	preferAsVictim(pid)
	leaveRoom(pid)
	return p, nil
}

// WaitAdopted waits for a process that [Adopt] returned. It returns the same errors as [Wait]: an
// exit status other than 0 is an [*exec.ExitError].
func WaitAdopted(p *os.Process) error {
	state, err := p.Wait()
	started.forget(p)
	if err == nil && !state.Success() {
		err = &exec.ExitError{ProcessState: state}
	}
	return err
}

func (t *table) forget(p *os.Process) {
	t.mu.Lock()
	// The pid may already belong to a newer child.
	if t.processes[p.Pid] == p {
		delete(t.processes, p.Pid)
	}
	t.mu.Unlock()
	select {
	case t.waited <- struct{}{}:
	default:
	}
}

// Reap reaps the orphans that this process inherits as pid 1 or as a child subreaper,
// until ctx ends. A process needs only one Reap.
func Reap(ctx context.Context) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		for {
			more, err := started.reapOne()
			if err != nil {
				return fmt.Errorf("child: reap an orphan: %w", err)
			}
			if !more {
				break
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		case <-started.waited:
		}
	}
}

// reapOne looks at the first child that has ended. It reports whether it reaped it, in
// which case there may be more. A child started by Start is left to its Wait.
func (t *table) reapOne() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var info unix.Siginfo
	err := ignoringEINTR(func() error {
		return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	if errors.Is(err, unix.ECHILD) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	pid := pidOf(&info)
	if _, ours := t.processes[pid]; pid == 0 || ours {
		return false, nil
	}
	err = ignoringEINTR(func() error {
		_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return err
	})
	return err == nil, err
}

// pidOf reads si_pid, which [unix.Siginfo] does not name: it is the first word of
// the union behind three int32, aligned as a pointer is.
func pidOf(info *unix.Siginfo) int {
	const word = unsafe.Sizeof(uintptr(0))
	const offset = (3*unsafe.Sizeof(int32(0)) + word - 1) &^ (word - 1)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// reserve is the number of processes and threads allowed to a user that are kept for
// this process and not available to a child of the same user.
const reserve = 32

// leaveRoom is best effort too: the processes of another user are counted separately.
func leaveRoom(pid int) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &l) != nil || l.Max == unix.RLIM_INFINITY {
		return
	}
	l.Max -= min(reserve, l.Max/4)
	l.Cur = min(l.Cur, l.Max)
	_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &l, nil)
}

// preferAsVictim is best effort: where /proc is masked, the kernel decides by size
// alone.
func preferAsVictim(pid int) {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(strconv.Itoa(badness))
}
