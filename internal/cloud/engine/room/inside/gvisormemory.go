//go:build linux

package inside

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// checkpointer saves the memory of gVisor's sandbox. The sandbox stands still from then until
// it is told to go on, so that its files can be saved that belong to this memory.
type checkpointer struct {
	tunnel *tunnel.Server
	runsc  *runscProcess

	mu    sync.Mutex
	still bool
}

// save writes the memory to a directory, and reports whether the sandbox stands still, which it
// may after an error as well. When ctx ends gVisor may write for a while.
func (c *checkpointer) save(ctx context.Context, dir *os.File) (still bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still {
		return true, errors.New("it stands still already")
	}
	// What is on the way between the two ends of the tunnel would be in neither.
	if err := c.tunnel.Park(ctx); err != nil {
		return false, err
	}
	if err := c.runsc.command(context.WithoutCancel(ctx), nil, "pause"); err != nil {
		return false, errors.Join(err, c.tunnel.GoOn())
	}
	c.still = true
	return true, c.runsc.command(ctx, dir, "checkpoint", "--leave-running", "--image-path="+passedDirectory)
}

// goOn ends what save began.
func (c *checkpointer) goOn(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.still {
		return nil
	}
	if err := c.runsc.command(ctx, nil, "resume"); err != nil {
		return err
	}
	c.still = false
	return c.tunnel.GoOn()
}
