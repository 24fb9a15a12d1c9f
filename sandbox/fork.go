package sandbox

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
)

// ForkParams says how to fork a sandbox. The zero value is one copy.
type ForkParams struct {
	// Count is the number of copies, 1 to 100. Zero means 1. The service may let
	// fewer sandboxes run at a time.
	Count int
	// Expiry says how long the copies live, and whether their handles renew that. The zero
	// value means the expiry of the handle, or for [Client.Fork] that of the client. Then and
	// Resume must be empty: the copies have those of the original.
	Expiry Expiry
}

// ForkResult is one copy of a sandbox, or the reason why it was not made.
type ForkResult struct {
	// Sandbox is the handle of the copy, and nil when Err is set. The copy was
	// created through it: its Close, which may be called on nil, tears the copy down.
	Sandbox *Sandbox
	// Err is the reason if there is no copy, such as [ErrRateLimited] where no more sandboxes may
	// run.
	Err error
	// Memory reports whether the copy goes on where the original was, with its processes and the
	// variables of its contexts. False means that it started anew from the files, as on a local
	// cloud whose engine does not save memory. A nil Memory means that the service does not say.
	Memory *bool
}

// Fork makes copies of the sandbox, all of the same moment, and the sandbox runs on. A copy has
// the files of the original and, if the service can do that ([ForkResult].Memory), its memory; its
// metadata, variables and network are those of the original. From then on the copies are
// independent. Each copy must be closed, also after an error of another one. Close the copies of a
// sandbox of [Create] before that sandbox, whose Close closes the client of all.
//
// The error is about all copies, and then there are none: a call that ctx cut off
// is undone, as by [Client.Create]. A sandbox that is paused is not resumed for it:
// the error is [ErrConflict].
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

// Fork is [Sandbox.Fork] for a sandbox to which there is no handle. If there is no
// such sandbox, the error is [ErrGone].
func (c *Client) Fork(ctx context.Context, id string, p *ForkParams) ([]ForkResult, error) {
	forks, err := c.fork(ctx, id, c.defaults, p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: fork: %w", missing(id, err))
	}
	return forks, nil
}

// fork returns handles that are configured by cfg.
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
