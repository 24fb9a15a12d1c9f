//go:build linux

package orphan

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

// patience bounds the time for ending orphans. Single orphans end within milliseconds. Orphans that
// start new processes all the time may take longer.
const patience = 10 * time.Second

// BecomeReaper makes orphans below this process its children.
func BecomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// End kills and reaps the processes that list returns, until list returns none. The processes must
// be children of this process, and nothing else may wait for them. When End has killed a parent,
// the next call of list returns the parent's children. If a process is killed while it starts
// another process, the other process does not start. In a chain of processes, each process may
// start the next process and then end. Even such a chain is over when one of its processes is
// killed.
func End(list func() ([]int, error)) error {
	deadline := time.Now().Add(patience)
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
			return fmt.Errorf("%d processes were left after %v, among them %v: end them by hand", len(pids), patience, pids[max(0, len(pids)-8):])
		}
		// The last ones first: those before them have ended in the meantime.
		for i := len(pids) - 1; i >= 0; i-- {
			_ = unix.Kill(pids[i], unix.SIGKILL) // its number cannot be used again until it is waited for
		}
		reaped := false
		for _, pid := range pids {
			got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil)
			reaped = reaped || got == pid
		}
		if !reaped {
			<-tick.C // they are still ending
		}
	}
}

// ChildrenOf lists the children of a process, youngest last. The list includes children that have
// ended but have not been waited for.
func ChildrenOf(parent int) ([]int, error) {
	tasks := fmt.Sprintf("/proc/%d/task", parent)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
	}
	// When a thread ends its children go to the first thread, which is therefore
	// read last.
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

// scanChildren is like ChildrenOf, but looks at the parent of every process.
func scanChildren(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", parent, err)
	}
	var children []int
	seen := false // whether the parent was seen; if not, /proc does not show this machine's processes
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
		// The name of the program is in parentheses and may contain any character.
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
