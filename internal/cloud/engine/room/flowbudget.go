//go:build linux

package room

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

const (
	// flowDescriptors is the number of the server's descriptors that a connection out of a
	// sandbox uses: two sockets.
	flowDescriptors = 2
	// assuredFlows is the number of connections that a sandbox may always have, even if other
	// sandboxes have many connections.
	assuredFlows = 16
)

// flowBudget divides the server's descriptors among the connections out of sandboxes. Half of the
// descriptors are the budget for these connections. The first assuredFlows connections of each
// sandbox are always allowed, and do not use the budget. With more, a sandbox may not have more
// connections than are still free in the budget. So a single sandbox gets about half of the budget,
// two sandboxes get about a third each, and some always remain for the next sandbox.
type flowBudget struct {
	mu   sync.Mutex
	left int
}

// flowCount counts the connections of one sandbox; flowBudget.mu guards it.
type flowCount struct{ open int }

// fill sets the budget according to this process's limit.
func (b *flowBudget) fill() error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	b.left = int(min(files.Cur, maxOpenFiles) / 2 / flowDescriptors)
	return nil
}

// take counts a new connection. If no more connections are allowed, it returns an error with the
// reason.
func (b *flowBudget) take(c *flowCount) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.open >= maxEgress {
		return fmt.Errorf("%w: %d connections are open", engine.ErrTooMany, c.open)
	}
	if c.open >= assuredFlows {
		if c.open >= b.left {
			return fmt.Errorf("%w: %d connections are open, and sandboxes share the open files of the server, whose limit could be raised (ulimit -n)", engine.ErrTooMany, c.open)
		}
		b.left--
	}
	c.open++
	return nil
}

// release returns a connection to the budget.
func (b *flowBudget) release(c *flowCount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.open--
	if c.open >= assuredFlows {
		b.left++
	}
}
