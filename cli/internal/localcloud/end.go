package localcloud

import (
	"context"
	"fmt"
	"os"
	"time"
)

// endWait limits the time that a local cloud may take to end its sandboxes, and to copy the files
// of the sandboxes that it pauses.
const endWait = 2 * time.Minute

// End ends the running local cloud and returns when it has ended. found reports whether one was
// running.
func (p Place) End(ctx context.Context) (found bool, err error) {
	pid, err := p.holder()
	if err != nil || pid == 0 {
		return false, err
	}
	if pid == elsewhere {
		return true, &ConflictError{Elsewhere: p.dir}
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return true, err
	}
	if err := end(process); err != nil {
		return true, fmt.Errorf("asking process %d to end: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	return true, p.waitEnded(ctx, pid)
}

// waitEnded waits until the process pid is no longer the local cloud.
func (p Place) waitEnded(ctx context.Context, pid int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		holder, err := p.holder()
		if err != nil || holder != pid {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for process %d to end: %w", pid, context.Cause(ctx))
		}
	}
}
