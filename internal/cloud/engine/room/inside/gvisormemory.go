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

var errStandsStill = errors.New("it stands still already")

// save writes the memory to a directory. After an error the sandbox goes on.
func (c *checkpointer) save(ctx context.Context, dir *os.File) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still {
		return errStandsStill
	}
	// What is on the way between the two ends of the tunnel would be in neither.
	if err := c.tunnel.Park(ctx); err != nil {
		return err
	}
	err = c.runsc.command(ctx, nil, "pause")
	if err == nil {
		err = c.runsc.command(ctx, dir, "checkpoint", "--leave-running", "--image-path="+passedDirectory)
		if err != nil {
			err = errors.Join(err, c.runsc.command(context.WithoutCancel(ctx), nil, "resume"))
		}
	}
	if err != nil {
		return errors.Join(err, c.tunnel.GoOn())
	}
	c.still = true
	return nil
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
