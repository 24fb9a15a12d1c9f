package sandbox

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
)

// ForkParams sets how to fork a sandbox. The zero value makes one copy.
type ForkParams struct {
	// Count is the number of copies, 1 to 100. Zero means 1. The service may limit the number of
	// running sandboxes to less.
	Count int
	// Expiry sets the lifetime of the copies, and whether their handles renew it. For [Sandbox.Fork]
	// the zero value means the expiry of the handle; for [Client.Fork] it means the expiry of the
	// client. Then and Resume must be empty, because the copies have the Then and Resume of the
	// original.
	Expiry Expiry
}

// ForkResult is one copy of a sandbox, or the reason why there is no copy.
type ForkResult struct {
	// Sandbox is the handle of the copy; nil when Err is set. Its Close, which may be called on
	// nil, tears the copy down.
	Sandbox *Sandbox
	// Err is the reason why there is no copy, such as [ErrRateLimited] if no more sandboxes may
	// run.
	Err error
	// Memory reports whether the copy has the processes of the original and the variables of its
	// contexts. False means that it started anew from the files, as on a local cloud with an engine
	// that does not save memory. Nil means that the service does not report Memory.
	Memory *bool
}

// Fork makes copies of the sandbox. All copies have the state of the same moment, and the sandbox
// itself continues to run. A copy has the files, metadata, variables and network of the original.
// It also has the memory of the original, if the service supports that ([ForkResult].Memory). After
// the fork the copies are independent.
//
// Each copy must be closed, even if another result has an error. If [Create] created the sandbox,
// close its copies before the sandbox, because Close of the sandbox closes the client that all of
// them use.
//
// If Fork returns an error, there are no copies. If ctx ends during the call, the copies are
// killed, as [Client.Create] kills its sandbox. Fork does not resume a paused sandbox: the error is
// [ErrConflict].
func (sb *Sandbox) Fork(ctx context.Context, p *ForkParams) ([]ForkResult, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	forks, err := sb.client.fork(ctx, sb.ID(), sb.config, p)
	if err != nil {
		return nil, sb.failed(ctx, "fork", missing(sb.ID(), err))
	}
	return forks, nil
}

// Fork is like [Sandbox.Fork], for a sandbox without a handle. The error is [ErrGone] if there
// is no such sandbox.
func (c *Client) Fork(ctx context.Context, id string, p *ForkParams) ([]ForkResult, error) {
	forks, err := c.fork(ctx, id, c.defaults, p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: fork: %w", missing(id, err))
	}
	return forks, nil
}

// fork returns handles with the configuration cfg.
func (c *Client) fork(ctx context.Context, id string, cfg sandboxConfig, p *ForkParams) ([]ForkResult, error) {
	if p == nil {
		p = &ForkParams{}
	}
	if p.Count < 0 {
		return nil, fmt.Errorf("ForkParams.Count is %d: want at least 0: %w", p.Count, api.ErrInvalidArgument)
	}
	if err := p.Expiry.checkInherited(); err != nil {
		return nil, fmt.Errorf("ForkParams.Expiry: %w", err)
	}
	if p.Expiry != (Expiry{}) {
		cfg.expiry = p.Expiry
	}
	cfg.inherits = true
	made, err := making(ctx, c, cfg.life(), func(ctx context.Context) ([]api.ForkResult, error) {
		return c.api.Sandboxes.Fork(ctx, id, &api.ForkParams{Count: p.Count, Lifetime: cfg.life()})
	}, copies)
	if err != nil {
		return nil, err
	}
	forks := make([]ForkResult, len(made))
	for i, f := range made {
		forks[i] = ForkResult{Memory: f.Memory}
		if f.Err != nil {
			forks[i].Err = fmt.Errorf("sandbox: copy %d of %s: %w", i+1, id, f.Err)
			continue
		}
		forks[i].Sandbox = newSandbox(c, f.Sandbox, cfg, true)
	}
	return forks, nil
}

// copies returns the sandboxes that a fork has made.
func copies(forks []api.ForkResult) (made []*api.Sandbox) {
	for _, f := range forks {
		if f.Sandbox != nil {
			made = append(made, f.Sandbox)
		}
	}
	return made
}
