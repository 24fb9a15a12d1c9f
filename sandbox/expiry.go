package sandbox

import (
	"cmp"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Then is the action at the end of a sandbox's lifetime. Empty means [ThenKill].
type Then string

// These are the actions at the end of a lifetime.
const (
	ThenKill            Then = "kill"             // the sandbox ends
	ThenPause           Then = "pause"            // the sandbox is paused and keeps its memory: see [PauseFull]
	ThenPauseFilesystem Then = "pause-filesystem" // the sandbox is paused and keeps only its files: see [PauseFilesystem]
)

func (t Then) pauses() bool { return t == ThenPause || t == ThenPauseFilesystem }

// Expiry sets the lifetime of a sandbox and the action at its end. The zero value is a lease of
// [DefaultLifetime]. The open handle renews the lease. When the program ends or crashes, the
// sandbox is killed at most DefaultLifetime later.
type Expiry struct {
	// After is the lifetime of the sandbox, rounded up to whole seconds. Zero means
	// [DefaultLifetime].
	After time.Duration
	// Renew makes the lifetime a lease: the open handle renews it each time half of it has
	// passed. With Renew, the field After must be 0, or 15 seconds to an hour.
	//
	// Without Renew, the lifetime is fixed if the field After is not 0. A fixed lifetime ends even if
	// the sandbox is in use. If After is 0, the lifetime is a lease if Then is [ThenKill], and fixed
	// otherwise.
	Renew bool
	// Idle is the time without use after which the action of Then follows, too. It is rounded up to whole
	// seconds. Zero means that there is no such limit. Idle needs a local cloud whose engine sees all
	// requests; other services return [errors.ErrUnsupported]. With Idle, Renew must not be set, and the
	// field After must be 0 or longer than Idle. If After is 0, the sandbox may live as long as the service
	// allows, and there is no lease.
	//
	// These are uses: the begin and the end of a request to a port, a byte of an open connection to a port,
	// running code, and a command that a client follows, except in a terminal. Creating, connecting and
	// resuming are uses, too. These are not uses: an open handle, a silent connection or terminal, pings of
	// a websocket, SetLifetime, Info, lists, metrics and logs, and connections out of the sandbox.
	Idle time.Duration
	// Then is the action at the end of the lifetime; empty means [ThenKill]. [Connect] resumes a
	// paused sandbox.
	Then Then
	// Resume makes any request to the paused sandbox resume it, for example a call of its handle, or
	// a browser that opens one of its ports. A resumed sandbox has the lifetime After again, but at
	// least 5 minutes. Resume needs [ThenPause], because requests can resume a sandbox only with
	// its memory.
	Resume bool
}

// WithExpiry sets the lifetime of the sandbox and the action at its end. It replaces the expiry in
// the client's defaults completely. [Connect] never shortens a lifetime. Connect refuses Then,
// Resume and Idle, because they are fixed when a sandbox is created.
func WithExpiry(e Expiry) HandleOption {
	return handleOption(func(c *config) error {
		if err := e.check(); err != nil {
			return fmt.Errorf("sandbox: WithExpiry: %w", err)
		}
		c.expiry, c.expiryAsked = e, true
		return nil
	})
}

// check returns an error if the fields contradict each other.
func (e Expiry) check() error {
	switch {
	case e.After < 0:
		return fmt.Errorf("a lifetime of %v: want a positive one: %w", e.After, api.ErrInvalidArgument)
	case e.Renew && e.After != 0 && (e.After < minLease || e.After > time.Hour):
		return fmt.Errorf("a lease of %v: want %v to %v: %w", e.After, minLease, time.Hour, api.ErrInvalidArgument)
	case e.Idle < 0:
		return fmt.Errorf("an idle limit of %v: want a positive one: %w", e.Idle, api.ErrInvalidArgument)
	case e.Idle > 0 && e.Renew:
		return fmt.Errorf("an idle limit and a lease exclude each other: leave out Renew: %w", api.ErrInvalidArgument)
	case e.After > 0 && e.Idle >= e.After:
		return fmt.Errorf("an idle limit of %v has no effect in a lifetime of %v: want a longer lifetime, or none: %w", e.Idle, e.After, api.ErrInvalidArgument)
	case e.Then != "" && e.Then != ThenKill && !e.Then.pauses():
		return fmt.Errorf("no end is named %q: want %q, %q or %q: %w", string(e.Then), ThenKill, ThenPause, ThenPauseFilesystem, api.ErrInvalidArgument)
	case e.Resume && e.Then != ThenPause:
		return fmt.Errorf("only a sandbox that ends by ThenPause can be resumed by requests, because it keeps its memory: %w", api.ErrInvalidArgument)
	}
	return nil
}

// checkInherited checks the expiry of a sandbox whose Then, Resume and Idle are already set.
func (e Expiry) checkInherited() error {
	if e.Then != "" || e.Resume || e.Idle != 0 {
		return fmt.Errorf("Then, Resume and Idle are decided when a sandbox is created: %w", api.ErrInvalidArgument)
	}
	return e.check()
}

// checkConnect returns an error for settings that are fixed when a sandbox is created.
func (c *sandboxConfig) checkConnect() error {
	if !c.expiryAsked {
		return nil
	}
	if err := c.expiry.checkInherited(); err != nil {
		return fmt.Errorf("sandbox: Connect: Expiry: %w", err)
	}
	return nil
}

// apply copies the set fields of e to p. The service chooses the values of the other fields.
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
	if p.IdleTimeout = e.Idle; e.Idle > 0 {
		p.Lifetime = e.After
	}
}

// longestLife is the lifetime that a handle assumes for a sandbox that may live as long as the service allows.
const longestLife = 24 * time.Hour

// life returns the lifetime to request from the service, counted from now.
func (c *sandboxConfig) life() time.Duration { return cmp.Or(c.expiry.After, DefaultLifetime) }

// renewal returns the lease that a handle renews; 0 means none.
func (c *sandboxConfig) renewal() time.Duration {
	e := c.expiry
	if !e.Renew && (e.After != 0 || e.Then.pauses() || e.Idle != 0) {
		return 0
	}
	return c.life()
}
