//go:build linux

package halt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Members are the processes to stop. They may start other processes, and may end, at any time.
type Members interface {
	// List returns the process ids of the members, as this process sees them.
	List() ([]int, error)
	// Has reports whether a process is a member.
	Has(pid int) bool
}

// Halted are stopped processes.
type Halted struct {
	members Members
	last    int
	known   map[int]*process
	order   []*process // parents before their children
	waited  time.Duration
}

// process identifies a member. It never refers to a later process with the same process id.
type process struct {
	pid     int
	started uint64
	stopped bool // Stop stopped the process; if false, it was already stopped by somebody else
	awaited bool // the wait for its stop is over
}

// Stop stops all members, and returns when none of them runs. Then none of them can start another
// process. If Stop fails, or ctx ends, every member that ran before continues to run.
//
// Stop stops parents before their children, so that no parent receives the report that a child has
// stopped. The process last adopts orphans. Stop stops it only when no other member runs, because
// last must reap the orphans that end. Otherwise members that start other processes as fast as they
// can would fill the machine. Stop does not wait for a process that waits for a disk, or for a
// child that it started with vfork: such a process stops before it runs another instruction.
func Stop(ctx context.Context, members Members, last int) (*Halted, error) {
	h := &Halted{members: members, last: last, known: make(map[int]*process)}
	// One quiet pass is not enough: a process that was stopped when the pass looked at it may have
	// been continued by one that the pass had not looked at yet.
	const enough = 2
	for quiet, with := 0, false; ; {
		settled, err := h.pass(with)
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("processes were still running: %w", context.Cause(ctx))
		}
		if err != nil {
			return nil, errors.Join(err, h.Continue())
		}
		switch {
		case !settled:
			quiet = 0
		case !with:
			with = true
		default:
			quiet++
		}
		if quiet == enough {
			return h, nil
		}
	}
}

// Continue lets the processes that Stop stopped run again. It continues children before their
// parents, so that no parent sees a stopped child.
func (h *Halted) Continue() error {
	var errs []error
	for _, p := range slices.Backward(h.order) {
		if p.stopped {
			errs = append(errs, p.signal(unix.SIGCONT))
		}
	}
	h.known, h.order = nil, nil
	return errors.Join(errs...)
}

// pass stops the members that it finds running. settled reports whether it found no running member.
// It stops h.last, the parent of orphans, only if with is true.
func (h *Halted) pass(with bool) (settled bool, err error) {
	pids, err := h.members.List()
	if err != nil {
		return false, err
	}
	listed := make(map[int]bool, len(pids))
	for _, pid := range pids {
		listed[pid] = pid != h.last
	}
	settled = true
	for _, pid := range slices.Backward(pids) { // the others may have ended in the meantime
		for _, now := range lineage(pid, listed) {
			listed[now.pid] = false
			held, err := h.stopOne(now)
			if err != nil {
				return false, err
			}
			settled = settled && held
		}
		settled = settled && !listed[pid] // it has ended, and may have started another one before
	}
	if !with {
		return settled, nil
	}
	now, err := look(h.last)
	if err != nil {
		return false, err
	}
	held, err := h.stopOne(now)
	return settled && held, err
}

// lineage returns the status of the process pid and of its ancestors that are listed, the oldest
// ancestor first. It returns nothing if the process is not listed or has ended.
func lineage(pid int, listed map[int]bool) (line []status) {
	for listed[pid] && len(line) < len(listed) {
		now, err := look(pid)
		if err != nil {
			break
		}
		line = append(line, now)
		pid = now.parent
	}
	slices.Reverse(line)
	return line
}

// stopOne stops a process, and reports whether it was already stopped.
func (h *Halted) stopOne(now status) (held bool, err error) {
	p := h.known[now.pid]
	seen := p != nil && p.started == now.started
	if !seen {
		if !h.members.Has(now.pid) {
			return false, nil // its number was reused, or it has just ended
		}
		p = &process{pid: now.pid, started: now.started}
		h.known[now.pid] = p
		if now.pid == h.last {
			h.order = slices.Insert(h.order, 0, p)
		} else {
			h.order = append(h.order, p)
		}
	}
	if now.ended() {
		return seen, nil
	}
	if held, err := now.held(); held || err != nil {
		return held, ignoreGone(err)
	}
	if parent := h.known[now.parent]; parent != nil && parent.stopped && !parent.awaited {
		parent.awaited = true
		if err := h.await(parent); err != nil {
			return false, err
		}
	}
	held = p.stopped && now.state == waiting
	p.stopped = true
	return held, p.signal(unix.SIGSTOP)
}

// patience bounds the wait for all parents together. Each parent stops as soon as it runs, so the
// wait is long only on a busy machine. In that case, it is more urgent to stop the busy processes.
const patience = 50 * time.Millisecond

// await waits until a process that has been sent the signal has stopped, or patience is
// over.
func (h *Halted) await(p *process) error {
	began := time.Now()
	defer func() { h.waited += time.Since(began) }()
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for h.waited+time.Since(began) < patience {
		now, err := look(p.pid)
		if err != nil || now.started != p.started || now.ended() || now.state == waiting {
			return ignoreGone(err)
		}
		if held, err := now.held(); held || err != nil {
			return ignoreGone(err)
		}
		<-tick.C
	}
	return nil
}

// signal sends a signal to this process. It never sends the signal to a later process with the same
// process id.
func (p *process) signal(signal unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if now, err := look(p.pid); err != nil || now.started != p.started {
		return ignoreGone(err)
	}
	err = ignoreGone(unix.PidfdSendSignal(fd, signal, nil, 0))
	if err != nil {
		return fmt.Errorf("send signal %d to process %d: %w", int(signal), p.pid, err)
	}
	return nil
}

// ignoreGone returns nil if err means that the process has ended. Otherwise it returns err.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
