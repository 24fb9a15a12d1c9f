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
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Badness is added to the OOM score adjustment of children. When the sandbox runs out of memory,
// the kernel therefore kills a child before envd. E2B uses the same value.
const Badness = 100

// MaxBadness is the greatest OOM score adjustment that the kernel accepts.
const MaxBadness = 1000

// started is the table of the children of this process. It is global because children belong to
// the process as a whole.
var started = table{processes: make(map[int]*os.Process), waited: make(chan struct{}, 1)}

type table struct {
	// mu is held from before a fork until the child is in processes. It is also held while Reap
	// checks whether a zombie is in processes.
	mu        sync.Mutex
	processes map[int]*os.Process
	waited    chan struct{} // receives when a call of Wait has returned, so that Reap looks for orphans again
}

// Start starts cmd like [exec.Cmd.Start], and keeps its exit status for [Wait]. The caller must
// call Wait exactly once, and must not block on anything else before it calls Wait. As long as
// nobody has waited for a child that has ended, [Reap] finds only this child, and not the orphans
// after it.
func Start(cmd *exec.Cmd) error {
	started.mu.Lock()
	defer started.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	started.processes[cmd.Process.Pid] = cmd.Process
	PreferAsVictim(cmd.Process.Pid, Badness)
	leaveRoom(cmd.Process.Pid)
	return nil
}

// Wait waits for a command that was started with [Start]. It returns the error of [exec.Cmd.Wait].
func Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	started.forget(cmd.Process)
	return err
}

// Adopt takes over a child that was not started here: an orphan that this process inherited and
// has not reaped. The caller must call [WaitAdopted] exactly once.
func Adopt(pid int) (*os.Process, error) {
	started.mu.Lock()
	defer started.mu.Unlock()
	if started.processes[pid] != nil {
		return nil, fmt.Errorf("child: adopt process %d: it was started here", pid)
	}
	var info unix.Siginfo // Waitid fails if pid is not a child of this process
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
	PreferAsVictim(pid, Badness)
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

// reapOne looks at the first child that has ended. If Start started this child, reapOne leaves the
// child for Wait to reap. Otherwise it reaps the child and returns true; then more children may have
// ended.
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

// pidOf returns the field si_pid, which [unix.Siginfo] lacks. The field is the first word of a
// union. The union follows three int32 fields, and is aligned like a pointer.
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

// reserve is subtracted from a user's limit of processes and threads to get the limit of a child.
const reserve = 32

// leaveRoom lowers a child's limit of processes by reserve, or by a quarter if that is less. This
// process can then still start processes when the child has reached its limit. leaveRoom ignores
// errors, because the kernel counts the processes of other users separately.
func leaveRoom(pid int) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &l) != nil || l.Max == unix.RLIM_INFINITY {
		return
	}
	l.Max -= min(reserve, l.Max/4)
	l.Cur = min(l.Cur, l.Max)
	_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &l, nil)
}

// PreferAsVictim sets the OOM score adjustment of a process to this process's plus badness. It
// ignores errors: if /proc is masked, it cannot set the adjustment, and the OOM killer then chooses
// processes by size alone.
func PreferAsVictim(pid, badness int) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return
	}
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(strconv.Itoa(min(score+badness, MaxBadness)))
}
