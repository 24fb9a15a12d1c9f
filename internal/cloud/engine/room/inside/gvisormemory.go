//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// checkpointer stops the processes of gVisor's sandbox and saves their memory.
type checkpointer struct {
	tunnel *tunnel.Server
	runsc  *runscProcess

	mu     sync.Mutex
	still  bool // the processes are stopped
	begun  int  // number of calls of stop and goOn
	parked bool // the tunnel is parked, as save requires
}

// parkTimeout bounds the time that envd may take to prepare for a save. The preparation takes less
// than a millisecond, unless other processes use all processor time, or envd is hostile.
const parkTimeout = 3 * time.Second

var errParkTimeout = fmt.Errorf("envd did not stand still within %v", parkTimeout)

// stop stops the processes. After an error, the processes continue to run. stop must not use a
// control group, because processes of gVisor that are stopped by a control group crash sooner or
// later.
func (c *checkpointer) stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	if c.still {
		return nil
	}
	parking, cancel := context.WithTimeoutCause(ctx, parkTimeout, errParkTimeout)
	defer cancel()
	err := c.tunnel.Park(parking)
	c.parked = err == nil
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), c.unpark())
	}
	if err := c.runsc.command(context.WithoutCancel(ctx), nil, "pause"); err != nil {
		return errors.Join(err, c.unpark())
	}
	c.still = true
	return nil
}

func (c *checkpointer) unpark() error {
	if !c.parked {
		return nil
	}
	c.parked = false
	return c.tunnel.GoOn()
}

// save writes the memory of stopped processes to a directory. After ctx has ended, gVisor may
// continue to write for a while.
func (c *checkpointer) save(ctx context.Context, dir *os.File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.still:
		return errors.New("its processes run")
	case !c.parked:
		return errParkTimeout
	}
	return c.runsc.command(ctx, dir, "checkpoint", "--leave-running", "--image-path="+passedDirectory)
}

// goOn lets the stopped processes run again.
func (c *checkpointer) goOn(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	if !c.still {
		return nil
	}
	if err := c.runsc.command(ctx, nil, "resume"); err != nil {
		return err
	}
	c.still = false
	return c.unpark()
}

// stops returns whether the processes are stopped, and a number that changes whenever they are
// stopped or continue.
func (c *checkpointer) stops() (still bool, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.still, c.begun
}
