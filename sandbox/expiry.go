package sandbox

import (
	"cmp"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Then is the action at the end of a sandbox's lifetime. The empty one is [ThenKill].
type Then string

// The actions at the end of a lifetime.
const (
	ThenKill            Then = "kill"             // it ends
	ThenPause           Then = "pause"            // it is paused, with its memory: see [PauseFull]
	ThenPauseFilesystem Then = "pause-filesystem" // it is paused, with its files alone: see [PauseFilesystem]
)

func (t Then) pauses() bool { return t == ThenPause || t == ThenPauseFilesystem }

// Expiry sets the lifetime of a sandbox and the action at its end. The zero value is a lease of
// [DefaultLifetime]: the open handle renews it, and the sandbox is killed at most that long after
// the program ends, however that happens.
type Expiry struct {
	// After is the lifetime of the sandbox, rounded up to whole seconds. Zero means
	// [DefaultLifetime].
	After time.Duration
	// Renew makes the lifetime a lease: the open handle renews it each time half of it has passed.
	// After must then be 0, or 15 seconds to an hour. Without Renew, an After other than 0 is
	// fixed: the sandbox ends then, whether or not it is in use. Without Renew and with an After
	// of 0, the lifetime is a lease if Then is [ThenKill], and fixed otherwise.
	Renew bool
	// Then is the action at the end; empty means [ThenKill]. [Connect] finds a paused sandbox
	// again and resumes it.
	Then Then
	// Resume makes any request for the paused sandbox wake it up, such as a call of its
	// handle, or a browser that opens one of its ports. It then lives for After again, and at
	// least 5 minutes. It needs [ThenPause]: only memory that was kept can be woken up.
	Resume bool
}

// WithExpiry sets the lifetime of the sandbox and the action at its end. It replaces the expiry of
// the client's defaults as a whole. [Connect] refuses Then and Resume, which are decided when a
// sandbox is created; it never shortens a life.
func WithExpiry(e Expiry) HandleOption {
	return handleOption(func(c *config) error {
		if err := e.check(); err != nil {
			return fmt.Errorf("sandbox: WithExpiry: %w", err)
		}
		c.expiry, c.expiryAsked = e, true
		return nil
	})
}

// check refuses what contradicts itself.
func (e Expiry) check() error {
	switch {
	case e.After < 0:
		return fmt.Errorf("a lifetime of %v: want a positive one: %w", e.After, api.ErrInvalidArgument)
	case e.Renew && e.After != 0 && (e.After < minLease || e.After > time.Hour):
		return fmt.Errorf("a lease of %v: want %v to %v: %w", e.After, minLease, time.Hour, api.ErrInvalidArgument)
	case e.Then != "" && e.Then != ThenKill && !e.Then.pauses():
		return fmt.Errorf("no end is named %q: want %q, %q or %q: %w", string(e.Then), ThenKill, ThenPause, ThenPauseFilesystem, api.ErrInvalidArgument)
	case e.Resume && e.Then != ThenPause:
		return fmt.Errorf("only a sandbox that ends by ThenPause can be resumed by requests, because it keeps its memory: %w", api.ErrInvalidArgument)
	}
	return nil
}

// checkInherited is check for a sandbox that has its Then and Resume from elsewhere.
func (e Expiry) checkInherited() error {
	if e.Then != "" || e.Resume {
		return fmt.Errorf("Then and Resume are decided when a sandbox is created: %w", api.ErrInvalidArgument)
	}
	return e.check()
}

// checkConnect refuses what only the creation of a sandbox decides.
func (c *sandboxConfig) checkConnect() error {
	if !c.expiryAsked {
		return nil
	}
	if err := c.expiry.checkInherited(); err != nil {
		return fmt.Errorf("sandbox: Connect: Expiry: %w", err)
	}
	return nil
}

// apply sets what e chose, and leaves the rest to the service.
func (e Expiry) apply(p *api.CreateParams) {
	if e.Then != "" {
		p.AutoPause = new(e.Then.pauses())
	}
	if e.Then == ThenPauseFilesystem {
		p.AutoPauseMemory = new(false)
	}
	if e.Resume {
		p.AutoResume = new(true)
	}
}

// life returns what the service is told: how long the sandbox may live from now.
func (c *sandboxConfig) life() time.Duration { return cmp.Or(c.expiry.After, DefaultLifetime) }

// renewal returns the lease that a handle renews, 0 for none.
func (c *sandboxConfig) renewal() time.Duration {
	e := c.expiry
	if !e.Renew && (e.After != 0 || e.Then.pauses()) {
		return 0
	}
	return c.life()
}
