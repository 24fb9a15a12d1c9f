//go:build linux

package room

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// flowDescriptors is what a connection out of a sandbox costs the server at
	// most: two sockets, and two pipes while it copies.
	flowDescriptors = 6
	// assuredFlows are connections that a sandbox has whatever others have.
	assuredFlows = 16
)

// flowBudget divides the server's descriptors among the sandboxes' connections
// out. Half of them are for these. No sandbox may have more than is left: so one
// alone gets up to half, two a third each, and there is always some left for the
// next.
type flowBudget struct {
	mu   sync.Mutex
	left int
}

// flowCount is how many connections one sandbox has; the budget guards it.
type flowCount struct{ open int }

// fill measures the budget.
func (b *flowBudget) fill() error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	b.left = int(min(files.Cur, maxOpenFiles) / 2 / flowDescriptors)
	return nil
}

// take counts a connection, or says why there may be no more.
func (b *flowBudget) take(c *flowCount) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.open >= maxEgress {
		return fmt.Errorf("%w: %d connections are open", ErrTooMany, c.open)
	}
	if c.open >= assuredFlows {
		if c.open >= b.left {
			return fmt.Errorf("%w: %d connections are open, and sandboxes share the open files of the server, whose limit could be raised (ulimit -n)", ErrTooMany, c.open)
		}
		b.left--
	}
	c.open++
	return nil
}

// release gives a connection back.
func (b *flowBudget) release(c *flowCount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.open--
	if c.open >= assuredFlows {
		b.left++
	}
}
