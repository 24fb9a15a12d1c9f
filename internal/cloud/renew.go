package cloud

import (
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// broken records that a cloud can no longer run sandboxes.
type broken struct {
	done chan struct{}
	err  error // set before done is closed
}

// ownEngine returns the cloud's own engine. While a new engine is being opened, it returns the
// previous one.
func (c *Cloud) ownEngine() engine.Engine {
	latest, _ := c.engines.latest.Load(c.engines.own)
	return latest.(engine.Engine)
}

// renewEngine opens the cloud's own engine again whenever the engine ends by itself. It stops when
// opening the engine fails, or when the engine ends too often.
func (c *Cloud) renewEngine() {
	for {
		own := c.ownEngine()
		select {
		case <-own.Done():
		case <-c.life.Done():
			return
		}
		_, err := c.engines.open(c.life, c.engines.own)
		switch {
		case errors.Is(err, lifecycle.ErrClosed) || c.life.Err() != nil:
			return
		case err != nil:
			c.options.Logger.ErrorContext(c.life, "the engine ended, and can have no more sandboxes", "reason", own.Err(), "error", err)
			c.broken.err = fmt.Errorf("cloud: the engine %s: %w", c.engines.own, err)
			close(c.broken.done)
			return
		}
		c.options.Logger.WarnContext(c.life, "the engine ended with its running sandboxes, and there is another one", "reason", own.Err())
	}
}

// Done returns a channel that is closed when the cloud can no longer run sandboxes. The reason is
// that a process outside the cloud kills the supervisor of the sandboxes again and again. The
// caller must still close the cloud.
func (c *Cloud) Done() <-chan struct{} { return c.broken.done }

// Err returns the reason why the cloud can no longer run sandboxes. It returns nil until the
// channel of Done is closed.
func (c *Cloud) Err() error {
	select {
	case <-c.broken.done:
		return c.broken.err
	default:
		return nil
	}
}
