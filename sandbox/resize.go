package sandbox

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
)

// Resize changes the resources of the running sandbox. A zero field of r does not change. The limits
// hold at once, for running programs too, and connections stay open. [Info], metrics, forks, snapshots
// and pauses have the new resources. What a running program has already counted stays as it is, such
// as the threads of a BLAS library or GOMAXPROCS. Programs that start later count the new processors
// and memory, except with the engine gvisor.
//
// The error is [api.ErrConflict] if the sandbox uses more memory or disk than r allows. It is
// [errors.ErrUnsupported] if the service is not a local cloud, or if the engine or the machine cannot
// change one of the resources of a running sandbox. Like [WithResources], Resize returns
// [api.ErrInvalidArgument] for more than is allowed, and for too little. It returns [ErrGone] with
// [GonePaused] if the sandbox is paused. After each of these errors, all resources are as before.
func (sb *Sandbox) Resize(ctx context.Context, r Resources) error {
	if err := r.checkChange(); err != nil {
		return err
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := sb.client.api.Sandboxes.Resize(ctx, sb.ID(), api.Resources(r)); err != nil {
		return sb.failed(ctx, "resize", sb.client.asleepOrMissing(ctx, sb.ID(), err))
	}
	return nil
}

// Resize changes the resources of a running sandbox, like [Sandbox.Resize]. Any program may have
// created the sandbox.
func (c *Client) Resize(ctx context.Context, id string, r Resources) error {
	if err := r.checkChange(); err != nil {
		return err
	}
	if err := c.api.Sandboxes.Resize(ctx, id, api.Resources(r)); err != nil {
		return fmt.Errorf("sandbox: resize: %w", c.asleepOrMissing(ctx, id, err))
	}
	return nil
}

// checkChange returns an error for resources that no running sandbox can change to.
func (r Resources) checkChange() error {
	if r.invalid() || r == (Resources{}) {
		return fmt.Errorf("sandbox: resize: %+v: want numbers that are not negative, and one that is positive: %w", r, api.ErrInvalidArgument)
	}
	return nil
}
