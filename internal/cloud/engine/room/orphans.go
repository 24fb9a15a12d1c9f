//go:build linux

package room

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file ends what no namespace ends: processes that outlived the one they
// descend from, and so became children of a subreaper.

// orphanPatience bounds the time in which orphans are ended. One by one they are gone
// in milliseconds; those that start others all the time may take longer.
const orphanPatience = 10 * time.Second

// becomeReaper makes orphans below this process its children.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// endOrphans kills and reaps what list returns, which are children of this process
// that nobody else waits for, until it returns none. Killing a parent makes its
// children the next ones. A process that is killed while it starts another one
// does not get to it, so even a chain of processes, each of which starts
// the next and ends, is ended when one of them is caught.
func endOrphans(list func() ([]int, error)) error {
	deadline := time.Now().Add(orphanPatience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := list()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes were left after %v, among them %v: end them by hand", len(pids), orphanPatience, pids[max(0, len(pids)-8):])
		}
		// The last ones first: those before them have ended in the meantime.
		for i := len(pids) - 1; i >= 0; i-- {
			_ = unix.Kill(pids[i], unix.SIGKILL) // until it is waited for, the number is its own
		}
		reaped := false
		for _, pid := range pids {
			got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil)
			reaped = reaped || got == pid
		}
		if !reaped {
			<-tick.C // they are ending
		}
	}
}

// childrenOf lists the children of a process, youngest last, with those that have
// ended and were not waited for.
func childrenOf(parent int) ([]int, error) {
	tasks := fmt.Sprintf("/proc/%d/task", parent)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
	}
	// What a thread leaves when it ends goes to the first one, which is read last.
	first := strconv.Itoa(parent)
	var names []string
	for _, thread := range threads {
		if thread.Name() != first {
			names = append(names, thread.Name())
		}
	}
	var children []int
	for _, name := range append(names, first) {
		data, err := os.ReadFile(filepath.Join(tasks, name, "children"))
		switch {
		case err == nil:
		case name != first && isGone(err):
			continue // the thread has ended
		case isGone(err):
			return scanChildren(parent) // the kernel was built without these files
		default:
			return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
			}
			children = append(children, pid)
		}
	}
	return children, nil
}

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// scanChildren is childrenOf by asking every process for its parent.
func scanChildren(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
	}
	var children []int
	seen := false // the parent: else /proc is not about this machine's processes
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		seen = seen || pid == parent
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if isGone(err) || errors.Is(err, fs.ErrPermission) {
			continue // it has ended, or is another user's
		}
		if err != nil {
			return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
		}
		// The name of the program is in parentheses and may hold anything.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	if !seen {
		return nil, fmt.Errorf("list the children of process %d: /proc does not show it", parent)
	}
	return children, nil
}
